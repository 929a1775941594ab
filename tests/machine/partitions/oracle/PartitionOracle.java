import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Asks Kafka's own PartitionChangeBuilder. A line in is a case, a line out what becomes of it, "none" for nothing.
 * Texts between bars; ids are separated by commas, "-" is null and "." an empty list; directories are small numbers.
 */
public final class PartitionOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(answer(line.split("\\|"))).append('\n');
        }
        System.out.print(out);
    }

    private static String answer(String[] f) {
        List<Integer> replicas = ids(f[0]);
        PartitionRegistration before = new PartitionRegistration.Builder()
            .setReplicas(array(replicas)).setIsr(array(ids(f[1]))).setLeader(Integer.parseInt(f[2]))
            .setElr(array(ids(f[3]))).setLastKnownElr(array(ids(f[4])))
            .setAddingReplicas(array(ids(f[5]))).setRemovingReplicas(array(ids(f[6])))
            .setDirectories(directories(ids(f[7])))
            .setLeaderRecoveryState(state(f[8])).setLeaderEpoch(5).setPartitionEpoch(7).build();
        Set<Integer> live = new HashSet<>(ids(f[9]));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(before, new Uuid(1, 2), 0, live::contains,
            MetadataVersion.latestProduction(), Integer.parseInt(f[10]), f[11].equals("elr"));
        builder.setDefaultDirProvider(broker -> new Uuid(0, 100 + broker));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(f[12]));
        if (ids(f[13]) != null) builder.setTargetIsr(ids(f[13]));
        if (ids(f[14]) != null) builder.setTargetReplicas(ids(f[14]));
        if (ids(f[15]) != null) builder.setTargetAdding(ids(f[15]));
        if (ids(f[16]) != null) builder.setTargetRemoving(ids(f[16]));
        if (!f[17].equals("-")) builder.setTargetLeaderRecoveryState(state(f[17]));
        if (!ids(f[18]).isEmpty()) builder.setUncleanShutdownReplicas(ids(f[18]));
        if (!f[19].equals("-")) builder.setDirectory(Integer.parseInt(f[19]), new Uuid(0, 77));
        return builder.build().map(made -> said((PartitionChangeRecord) made.message(), before)).orElse("none");
    }

    private static String said(PartitionChangeRecord change, PartitionRegistration before) {
        PartitionRegistration after = before.merge(change);
        return String.join("|",
            change.leader() == -2 ? "-" : String.valueOf(change.leader()), text(change.isr()), text(change.replicas()),
            text(change.addingReplicas()), text(change.removingReplicas()), text(change.eligibleLeaderReplicas()),
            text(change.lastKnownElr()), change.directories() == null ? "-" : text(change.directories().stream()
                .map(id -> (int) id.getLeastSignificantBits()).collect(Collectors.toList())),
            change.leaderRecoveryState() < 0 ? "-" : String.valueOf(change.leaderRecoveryState()),
            String.valueOf(after.leaderEpoch), String.valueOf(after.partitionEpoch));
    }

    private static LeaderRecoveryState state(String text) {
        return LeaderRecoveryState.of((byte) Integer.parseInt(text));
    }

    private static List<Integer> ids(String text) {
        if (text.equals("-")) return null;
        if (text.equals(".")) return new ArrayList<>();
        return Arrays.stream(text.split(",")).map(Integer::valueOf).collect(Collectors.toList());
    }

    private static int[] array(List<Integer> ids) {
        return ids.stream().mapToInt(Integer::intValue).toArray();
    }

    private static Uuid[] directories(List<Integer> numbers) {
        return numbers.stream().map(number -> new Uuid(0, number)).toArray(Uuid[]::new);
    }

    private static String text(List<Integer> ids) {
        if (ids == null) return "-";
        return ids.isEmpty() ? "." : ids.stream().map(String::valueOf).collect(Collectors.joining(","));
    }
}
