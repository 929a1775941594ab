import java.util.Arrays;
import kafka.admin.ConfigCommand;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.TopicCommand;

/**
 * Runs Kafka's kafka-topics and kafka-configs one after another in one JVM.
 *
 * Usage: Topics BOOTSTRAP [topics|configs ARGUMENT... ;]... A line "== CODE" closes the output of each command, with
 * its exit code.
 */
public final class Topics {
    private static Integer exitCode;

    public static void main(String[] args) {
        Exit.setExitProcedure((code, message) -> {
            if (exitCode == null) exitCode = code;
            throw new Ended();
        });
        int from = 1;
        for (int at = 1; at < args.length; at++) {
            if (args[at].equals(";")) {
                run(args[0], Arrays.copyOfRange(args, from, at));
                from = at + 1;
            }
        }
    }

    private static void run(String bootstrap, String[] command) {
        String[] arguments = Arrays.copyOf(command, command.length + 1);
        arguments[0] = "--bootstrap-server";
        System.arraycopy(command, 1, arguments, 2, command.length - 1);
        arguments[1] = bootstrap;
        exitCode = null;
        try {
            if (command[0].equals("configs")) ConfigCommand.main(arguments);
            else TopicCommand.main(arguments);
        } catch (Ended ended) {
            // exitCode says.
        }
        System.out.println("== " + (exitCode == null ? 0 : exitCode));
    }

    /** Thrown where a command would have ended the JVM; the command may catch it and end again with another code. */
    private static final class Ended extends RuntimeException {
        Ended() {
            super("ended", null, false, false);
        }
    }
}
