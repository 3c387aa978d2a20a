// Kafka Streams counts words exactly once; says "RUNNING" whenever it does.
// Started from source: java -cp KAFKA:STREAMS WordCount.java BOOTSTRAP STATE_FOLDER INPUT OUTPUT [CLIENT.PROPERTIES]
// Its state is in a store on disk with a changelog topic; a repartition topic lies between the split and the count.

import java.io.FileReader;
import java.io.IOException;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class WordCount {
    public static void main(String[] arguments) throws IOException {
        var settings = new Properties();
        if (arguments.length > 4) {
            try (var file = new FileReader(arguments[4])) {
                settings.load(file);
            }
        }
        settings.put("application.id", "wordcount");
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "300");
        settings.put("statestore.cache.max.bytes", "0"); // each count is written, so that none can be missed
        settings.put("session.timeout.ms", "2000"); // the share of one that was killed is free soon
        settings.put("heartbeat.interval.ms", "300");
        settings.put("auto.offset.reset", "earliest");
        settings.put("num.stream.threads", "1");
        settings.put("topic.segment.ms", "1000"); // what is restored from the changelog was compacted
        settings.put("topic.min.cleanable.dirty.ratio", "0.01");

        var text = Serdes.String();
        var builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(text, text))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("by-word", text, text))
            .count(Materialized.as("counts"))
            .toStream()
            .to(arguments[3], Produced.with(text, Serdes.Long()));

        var streams = new KafkaStreams(builder.build(settings), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("UNCAUGHT " + error);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((state, before) -> System.out.println(state));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
