import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** An invoice for each order, exactly once: Invoices SERVER [--until-idle] */
public class Invoices {
    public static void main(String[] args) {
        boolean untilIdle = List.of(args).contains("--until-idle");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consumerSettings(args[0]));
                KafkaProducer<String, String> producer = new KafkaProducer<>(producerSettings(args[0]))) {
            producer.initTransactions();
            consumer.subscribe(List.of("orders"));
            long written = 0;
            while (true) {
                ConsumerRecords<String, String> orders = consumer.poll(Duration.ofSeconds(1));
                if (orders.isEmpty()) {
                    if (untilIdle && hasReadAll(consumer)) {
                        return;
                    }
                    continue;
                }
                try {
                    write(consumer, producer, orders);
                } catch (ProducerFencedException error) {
                    throw error; // another process has taken over
                } catch (KafkaException error) {
                    producer.abortTransaction();
                    goBack(consumer);
                    continue;
                }
                written += orders.count();
                System.out.println(written + " invoices");
            }
        }
    }

    /** One transaction: the invoices of these orders, and how far the orders are read. */
    private static void write(
            KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> orders) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<String, String> order : orders) {
            producer.send(new ProducerRecord<>("invoices", order.key(), invoice(order.value())));
            ends.put(new TopicPartition(order.topic(), order.partition()), new OffsetAndMetadata(order.offset() + 1));
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        producer.commitTransaction();
    }

    /** The order as it is, under its new name, and not paid yet. */
    private static String invoice(String order) {
        return order.replaceFirst("\"id\"", "\"order\"").replaceFirst("}$", ", \"paid\": false}");
    }

    /** Whether this process has partitions, and has read all of their orders. */
    private static boolean hasReadAll(KafkaConsumer<String, String> consumer) {
        Set<TopicPartition> given = consumer.assignment();
        return !given.isEmpty() && given.stream().allMatch(place -> consumer.currentLag(place).orElse(1) == 0);
    }

    /** Read on from what is committed: the last round was aborted. */
    private static void goBack(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((place, offset) -> consumer.seek(place, offset == null ? 0 : offset.offset()));
    }

    private static Properties consumerSettings(String server) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", server);
        settings.put("group.id", "invoicing");
        settings.put("session.timeout.ms", "6000"); // a process that was killed is missed after six seconds
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        return settings;
    }

    private static Properties producerSettings(String server) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", server);
        settings.put("transactional.id", "invoicing");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        return settings;
    }
}
