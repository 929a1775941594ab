import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Map;

/**
 * Kafka's own command line tools, and any other program, in one JVM. A line in is a tool or a class and its arguments,
 * separated by tabs; what it prints comes out, then a line "=== CODE" with its exit code. Compiles against clients from
 * 2.0 to 4.4.
 */
public final class KafkaTools {
    private static final Map<String, String> TOOLS = Map.ofEntries(
        Map.entry("kafka-acls", "AclCommand"),
        Map.entry("kafka-broker-api-versions", "BrokerApiVersionsCommand"),
        Map.entry("kafka-client-metrics", "ClientMetricsCommand"),
        Map.entry("kafka-cluster", "ClusterTool"),
        Map.entry("kafka-configs", "ConfigCommand"),
        Map.entry("kafka-consumer-groups", "consumer.group.ConsumerGroupCommand"),
        Map.entry("kafka-delete-records", "DeleteRecordsCommand"),
        Map.entry("kafka-features", "FeatureCommand"),
        Map.entry("kafka-get-offsets", "GetOffsetShell"),
        Map.entry("kafka-groups", "GroupsCommand"),
        Map.entry("kafka-leader-election", "LeaderElectionCommand"),
        Map.entry("kafka-log-dirs", "LogDirsCommand"),
        Map.entry("kafka-metadata-quorum", "MetadataQuorumCommand"),
        Map.entry("kafka-reassign-partitions", "reassign.ReassignPartitionsCommand"),
        Map.entry("kafka-share-groups", "consumer.group.ShareGroupCommand"),
        Map.entry("kafka-streams-groups", "streams.StreamsGroupCommand"),
        Map.entry("kafka-topics", "TopicCommand"),
        Map.entry("kafka-transactions", "TransactionsCommand"));

    /** Thrown where a tool would have ended the JVM; it may catch that and end again, so the first code counts. */
    private static final class Exited extends RuntimeException {
        Exited() {
            super("exited", null, false, false);
        }
    }

    private static Integer exitCode;

    public static void main(String[] args) throws Exception {
        System.setErr(System.out);
        replaceExit();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            exitCode = null;
            run(words[0], Arrays.copyOfRange(words, 1, words.length));
            System.out.println("=== " + (exitCode == null ? 0 : exitCode));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void replaceExit() throws Exception {
        Class<?> exit = either("org.apache.kafka.common.utils.internals.Exit", "org.apache.kafka.common.utils.Exit");
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object instead = Proxy.newProxyInstance(exit.getClassLoader(), new Class<?>[] {procedure}, (it, method, given) -> {
            if (given[1] != null) System.out.println(given[1]);
            if (exitCode == null) exitCode = (Integer) given[0];
            throw new Exited();
        });
        exit.getMethod("setExitProcedure", procedure).invoke(null, instead);
    }

    private static void run(String name, String[] arguments) throws Exception {
        String tool = TOOLS.get(name);
        Class<?> program = tool == null ? Class.forName(name) : either("org.apache.kafka.tools." + tool, "kafka.admin." + tool);
        try {
            program.getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) thrown.getCause().printStackTrace(System.out);
            if (exitCode == null) exitCode = 1;
        }
    }

    /** The class of the first name; that of the second in releases before 4.4. */
    private static Class<?> either(String name, String before44) throws ClassNotFoundException {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException absent) {
            return Class.forName(before44);
        }
    }
}
