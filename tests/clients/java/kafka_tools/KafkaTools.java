import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's own command line tools in one JVM. A line in is a tool and its arguments, separated by tabs; what the tool
 * prints comes out, then a line "=== CODE" with its exit code.
 */
public final class KafkaTools {
    private static final Map<String, String> TOOLS = Map.of(
        "kafka-topics", "org.apache.kafka.tools.TopicCommand",
        "kafka-configs", "kafka.admin.ConfigCommand",
        "kafka-metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand",
        "kafka-leader-election", "org.apache.kafka.tools.LeaderElectionCommand",
        "kafka-reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "kafka-features", "org.apache.kafka.tools.FeatureCommand");

    /** Thrown where a tool would have ended the JVM; it may catch that and end again, so the first code counts. */
    private static final class Exited extends RuntimeException {
        Exited() {
            super("exited", null, false, false);
        }
    }

    private static Integer exitCode;

    public static void main(String[] args) throws Exception {
        System.setErr(System.out);
        Exit.setExitProcedure((code, message) -> {
            if (message != null) System.out.println(message);
            if (exitCode == null) exitCode = code;
            throw new Exited();
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            exitCode = null;
            run(TOOLS.get(words[0]), Arrays.copyOfRange(words, 1, words.length));
            System.out.println("=== " + (exitCode == null ? 0 : exitCode));
        }
    }

    private static void run(String tool, String[] arguments) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) thrown.getCause().printStackTrace(System.out);
            if (exitCode == null) exitCode = 1;
        }
    }
}
