import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.distributedlog.DistributedLogConfiguration;
import org.apache.distributedlog.LogRecord;
import org.apache.distributedlog.api.AsyncLogWriter;
import org.apache.distributedlog.api.DistributedLogManager;
import org.apache.distributedlog.api.namespace.Namespace;
import org.apache.distributedlog.api.namespace.NamespaceBuilder;
import org.apache.distributedlog.impl.metadata.BKDLConfig;
import org.apache.distributedlog.metadata.DLMetadata;

/**
 * DistributedLog's own writer under load: one JSON command a line in, one JSON answer a line out. It stays up for all
 * rounds, so that its code is compiled when it counts.
 *
 *   {"command": "open", "zookeeper": "127.0.0.1:2181", "ledgers": "/ledgers", "log": "bench", "buffer": 65536,
 *    "flush_ms": 1, "ensemble": 3, "ack": 2}
 *   {"command": "appends", "level": 1000, "seconds": 3, "size": 1024}
 */
public final class DistributedLogLoad {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int SAMPLES_MAX = 4_000_000;
    private AsyncLogWriter writer;
    private long txid;

    public static void main(String[] arguments) throws Exception {
        DistributedLogLoad load = new DistributedLogLoad();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode options = JSON.readTree(line);
                if (options.get("command").asText().equals("open")) {
                    load.open(options);
                } else {
                    load.appends(options, answer);
                }
            } catch (Throwable thrown) {
                answer.put("error", thrown.toString());
                thrown.printStackTrace();
            }
            System.out.println(answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private void open(JsonNode options) throws Exception {
        String zookeeper = options.get("zookeeper").asText();
        URI uri = URI.create("distributedlog://" + zookeeper + "/distributedlog");
        DLMetadata.create(new BKDLConfig(zookeeper, options.get("ledgers").asText())).create(uri);
        int ensemble = options.get("ensemble").asInt();
        DistributedLogConfiguration settings = new DistributedLogConfiguration()
            .setEnsembleSize(ensemble).setWriteQuorumSize(ensemble).setAckQuorumSize(options.get("ack").asInt())
            .setOutputBufferSize(options.get("buffer").asInt())
            .setPeriodicFlushFrequencyMilliSeconds(options.get("flush_ms").asInt())
            .setImmediateFlushEnabled(false)
            .setCreateStreamIfNotExists(true);
        Namespace namespace = NamespaceBuilder.newBuilder().conf(settings).uri(uri).build();
        DistributedLogManager log = namespace.openLog(options.get("log").asText());
        writer = log.openAsyncLogWriter().get();
        txid = Math.max(0, writer.getLastTxId()) + 1;
    }

    private void appends(JsonNode options, ObjectNode answer) throws Exception {
        int level = options.get("level").asInt();
        byte[] payload = new byte[options.get("size").asInt()];
        Semaphore room = new Semaphore(level);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long[] took = new long[SAMPLES_MAX];
        AtomicInteger done = new AtomicInteger();
        OperatingSystemMXBean machine = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = machine.getProcessCpuTime();
        long began = System.nanoTime();
        long end = began + (long) (options.get("seconds").asDouble() * 1e9);
        while (System.nanoTime() < end && failure.get() == null) {
            room.acquire();
            long sent = System.nanoTime();
            writer.write(new LogRecord(txid++, payload)).whenComplete((place, problem) -> {
                if (problem != null) {
                    failure.set(problem);
                }
                int number = done.getAndIncrement();
                if (number < SAMPLES_MAX) {
                    took[number] = System.nanoTime() - sent;
                }
                room.release();
            });
        }
        room.acquire(level);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        long spent = System.nanoTime() - began;
        int count = done.get();
        long[] sorted = Arrays.copyOf(took, Math.min(count, SAMPLES_MAX));
        Arrays.sort(sorted);
        answer.put("count", count);
        answer.put("per_s", count * 1e9 / spent);
        answer.put("cpu_us", (machine.getProcessCpuTime() - cpu) / 1e3 / count);
        answer.put("p50_ms", sorted[sorted.length / 2] / 1e6);
        answer.put("p99_ms", sorted[(int) (sorted.length * 0.99)] / 1e6);
    }
}
