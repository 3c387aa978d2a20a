import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A client of a history with Kafka's Java library: `producer` or `transformer`, until its standard input ends.
 *
 *     producer NAME SERVERS TOPIC PARTITIONS SEED          prints each transaction as JSON, as an `Op` of checker.py
 *     transformer NAME SERVERS TOPIC TARGET                prints the number of records of each committed transaction
 *
 * It retries what timed out. After any other error it starts again with a new client of the same name.
 */
public final class Clients {
    /** The producer's first value: Python's producers do not come so far. */
    private static final long FIRST_VALUE = 1L << 40;

    private static volatile boolean stopping;

    private interface Life {
        void run() throws Exception;
    }

    public static void main(String[] words) throws Exception {
        Thread input = new Thread(Clients::waitForTheEnd);
        input.setDaemon(true);
        input.start();
        Life life = words[0].equals("producer") ? new Producing(words) : () -> transform(words);
        while (!stopping) {
            try {
                life.run();
            } catch (KafkaException | IllegalStateException error) {
                Thread.sleep(100);
            }
        }
    }

    private static void waitForTheEnd() {
        try {
            while (System.in.read() >= 0) {
            }
        } catch (IOException error) {
            // the same as its end
        }
        stopping = true;
    }

    private static KafkaProducer<String, String> producer(String name, String servers) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers,
            "transactional.id", name,
            "transaction.timeout.ms", 20_000,
            "max.block.ms", 20_000,
            "request.timeout.ms", 10_000,
            "delivery.timeout.ms", 60_000,
            "retry.backoff.ms", 20,
            "retry.backoff.max.ms", 200,
            "reconnect.backoff.max.ms", 200);
        var made = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        try {
            retried(made::initTransactions);
        } catch (RuntimeException error) {
            made.close(Duration.ZERO);
            throw error;
        }
        return made;
    }

    private static void retried(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                // the same call may be repeated, and only that one
            }
        }
    }

    private static void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Sends a few records to some partitions, then commits, or sometimes aborts. */
    private static final class Producing implements Life {
        private static final class Sent {
            final String key;
            final long value;
            Future<RecordMetadata> answer;

            Sent(String key, long value) {
                this.key = key;
                this.value = value;
            }
        }

        private final String name;
        private final String servers;
        private final String topic;
        private final int partitions;
        private final Random random;
        private long next = FIRST_VALUE;

        Producing(String[] words) {
            name = words[1];
            servers = words[2];
            topic = words[3];
            partitions = Integer.parseInt(words[4]);
            random = new Random(Long.parseLong(words[5]));
        }

        @Override
        public void run() throws Exception {
            try (var producer = producer(name, servers)) {
                while (!stopping && transaction(producer)) {
                }
            }
        }

        /** Returns whether the producer can go on. */
        private boolean transaction(KafkaProducer<String, String> producer) throws Exception {
            List<Sent> sent = new ArrayList<>();
            boolean aborts = random.nextInt(4) == 0;
            try {
                producer.beginTransaction();
                for (int left = 1 + random.nextInt(6); left > 0; left--) {
                    int partition = random.nextInt(partitions);
                    Sent each = new Sent(topic + "-" + partition, next++);
                    sent.add(each);
                    each.answer = producer.send(new ProducerRecord<>(topic, partition, null, Long.toString(each.value)));
                }
                if (!aborts) {
                    retried(producer::commitTransaction);
                    tell("ok", sent);
                    return true;
                }
            } catch (KafkaException | IllegalStateException error) {
                // the library says below whether an abort is possible
            }
            try {
                retried(producer::abortTransaction);
            } catch (KafkaException | IllegalStateException error) {
                tell("unknown", sent);
                return false;
            }
            tell("aborted", sent);
            return true;
        }

        private void tell(String outcome, List<Sent> sent) throws Exception {
            List<String> sends = new ArrayList<>();
            for (Sent each : sent) {
                Long offset = outcome.equals("ok") ? (Long) each.answer.get().offset() : null;
                sends.add("{\"key\":\"%s\",\"value\":%d,\"offset\":%s}".formatted(each.key, each.value, offset));
            }
            print("{\"process\":\"%s\",\"outcome\":\"%s\",\"sends\":[%s]}".formatted(name, outcome, String.join(",", sends)));
        }
    }

    /** Consumes in a group, and writes each value to the same partition of another topic, with the offsets. */
    private static void transform(String[] words) {
        String name = words[1];
        String servers = words[2];
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", servers,
            "group.id", "transformers",
            "isolation.level", "read_committed",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "session.timeout.ms", 6_000,
            "heartbeat.interval.ms", 500,
            "max.poll.interval.ms", 20_000,
            "max.poll.records", 200,
            "partition.assignment.strategy", RangeAssignor.class.getName()));
        settings.put("reconnect.backoff.max.ms", 200);
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
             var producer = producer(name, servers)) {
            consumer.subscribe(List.of(words[3]));
            while (!stopping) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(100));
                if (!found.isEmpty()) {
                    producer.beginTransaction();
                    for (ConsumerRecord<String, String> record : found) {
                        producer.send(new ProducerRecord<>(words[4], record.partition(), null, record.value()));
                    }
                    Map<TopicPartition, OffsetAndMetadata> offsets = found.partitions().stream().collect(
                        Collectors.toMap(each -> each, each -> new OffsetAndMetadata(consumer.position(each))));
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    retried(producer::commitTransaction);
                    print(Integer.toString(found.count()));
                }
            }
        }
    }
}
