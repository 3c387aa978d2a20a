// A transactional producer that is told what to do in lines, and answers each with "ok" or the error's name.
// Started from source: java -cp KAFKA Producer.java BOOTSTRAP TRANSACTIONAL_ID TIMEOUT_MS

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

public class Producer {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "transactional.id", arguments[1],
            "transaction.timeout.ms", Integer.parseInt(arguments[2]),
            "max.block.ms", 20000);
        var serializer = new StringSerializer();
        try (var producer = new KafkaProducer<String, String>(settings, serializer, serializer);
             var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String said;
                try {
                    said = run(producer, line.split(" "));
                } catch (ExecutionException error) {
                    said = error.getCause().getClass().getSimpleName();
                } catch (RuntimeException error) {
                    said = error.getClass().getSimpleName();
                }
                System.out.println(said);
                System.out.flush();
            }
        }
    }

    private static String run(KafkaProducer<String, String> producer, String[] words) throws Exception {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(words[1], Integer.parseInt(words[2]), null, words[3])).get();
            case "many" -> {
                for (int n = 0; n < Integer.parseInt(words[3]); n++) {
                    String value = words[4] + "-" + n;
                    int partition = n % Integer.parseInt(words[2]);
                    producer.send(new ProducerRecord<>(words[1], partition, null, value + ".".repeat(1000 - value.length())));
                }
                producer.flush();
            }
            case "offset" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(words[1], Integer.parseInt(words[2])), new OffsetAndMetadata(Long.parseLong(words[3]))),
                new ConsumerGroupMetadata(words[4]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "ok";
    }
}
