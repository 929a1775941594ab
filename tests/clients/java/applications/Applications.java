import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.mirror.MirrorMaker;
import org.apache.kafka.connect.runtime.Connect;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Connect, MirrorMaker 2 and a Streams application in one JVM. A line in is "start KIND FILE", with the
 * properties of a worker, of MirrorMaker (into its cluster "cluster") or of the application, or "stop FILE"; a line
 * "done ..." comes out after each. Ends with its input.
 */
public final class Applications {
    private static final Map<String, Runnable> STOPS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("start")) start(words[1], words[2]);
            else STOPS.remove(words[1]).run();
            System.out.println("done " + line);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void start(String kind, String file) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream in = new FileInputStream(file)) {
            properties.load(in);
        }
        if (kind.equals("connect")) {
            Connect<?> connect = new ConnectDistributed().startConnect(Utils.propsToStringMap(properties));
            STOPS.put(file, connect::stop);
            System.out.println("listens at " + connect.rest().advertisedUrl());
        } else if (kind.equals("mirror")) {
            MirrorMaker mirror = new MirrorMaker(Utils.propsToStringMap(properties), List.of("cluster"));
            mirror.start();
            STOPS.put(file, mirror::stop);
        } else {
            KafkaStreams streams = counting(properties);
            streams.start();
            STOPS.put(file, () -> streams.close(CloseOptions.groupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP)));
        }
    }

    /** Counts the records of the topic "input" by value; each new count goes to the topic "output", by value. */
    private static KafkaStreams counting(Properties properties) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(properties.getProperty("input"))
            .groupBy((key, value) -> value, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream()
            .to(properties.getProperty("output"), Produced.valueSerde(Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        if (properties.containsKey("forget")) streams.cleanUp();
        return streams;
    }
}
