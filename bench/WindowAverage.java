// Averages over windows, exactly once: what bench.streams_peers and bench.everyday run on Kafka Streams.
// WindowAverage BOOTSTRAP STATE_FOLDER INPUT SECONDS GRACE_SECONDS OUTPUT..., each output of an aggregation of its own.
// Says "RUNNING" when it does.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;

public class WindowAverage {
    private static final ObjectMapper JSON = new ObjectMapper();

    record Sum(double total, long count) {}

    static KeyValue<String, Double> read(String value) {
        try {
            var fields = JSON.readTree(value);
            return KeyValue.pair(fields.get("device").asText(), fields.get("temp").asDouble());
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    public static void main(String[] arguments) {
        var settings = new Properties();
        settings.put("application.id", "averages");
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("auto.offset.reset", "earliest");
        settings.put("num.stream.threads", "2");
        // The first window that closes makes its cache walk through all segments since 1970, a minute each.
        settings.put("producer.transaction.timeout.ms", "600000");

        Serializer<Sum> write = (topic, sum) ->
            sum == null ? null : ByteBuffer.allocate(16).putDouble(sum.total()).putLong(sum.count()).array();
        Deserializer<Sum> readBack = (topic, data) -> {
            if (data == null) {
                return null;
            }
            var buffer = ByteBuffer.wrap(data);
            return new Sum(buffer.getDouble(), buffer.getLong());
        };
        Serde<Sum> sums = Serdes.serdeFrom(write, readBack);
        var text = Serdes.String();

        var builder = new StreamsBuilder();
        var length = Duration.ofSeconds(Long.parseLong(arguments[3]));
        var byDevice = builder.stream(arguments[2], Consumed.with(text, text))
            .map((key, value) -> read(value))
            .repartition(Repartitioned.with(text, Serdes.Double()).withName("by-device"))
            .groupByKey();
        for (int output = 5; output < arguments.length; output++) {
            byDevice
                .windowedBy(TimeWindows.ofSizeAndGrace(length, Duration.ofSeconds(Long.parseLong(arguments[4]))))
                .emitStrategy(EmitStrategy.onWindowClose())
                .aggregate(
                    () -> new Sum(0, 0),
                    (device, temp, sum) -> new Sum(sum.total() + temp, sum.count() + 1),
                    Materialized.with(text, sums))
                .toStream()
                .map((window, sum) -> KeyValue.pair(
                    window.key(),
                    "{\"_wend\":" + window.window().end() + ",\"device\":\"" + window.key() + "\",\"t\":"
                        + sum.total() / sum.count() + "}"))
                .to(arguments[output], Produced.with(text, text));
        }

        var streams = new KafkaStreams(builder.build(settings), settings);
        streams.setStateListener((state, before) -> System.out.println(state));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
