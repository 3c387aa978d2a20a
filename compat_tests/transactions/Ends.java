// The Java client as a read_committed consumer: its position, and the end that it sees, when it has read three records.
// Started from source: java -cp KAFKA Ends.java BOOTSTRAP TOPIC

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Ends {
    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "isolation.level", "read_committed",
            "auto.offset.reset", "earliest");
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, text, text)) {
            var place = new TopicPartition(arguments[1], 0);
            consumer.assign(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end) {
                consumer.poll(Duration.ofSeconds(1));
            }
            if (consumer.currentLag(place).getAsLong() != 0) {
                throw new AssertionError("lag " + consumer.currentLag(place));
            }
            System.out.println(consumer.position(place));
            System.out.println(end);
        }
    }
}
