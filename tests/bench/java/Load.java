import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Apache BookKeeper's own client under load: one JSON command a line in, one JSON answer a line out. It stays up for
 * all rounds, so that its code is compiled when it counts.
 *
 *   {"command": "adds", "uri": ..., "v2": true, "level": 100, "warm": 500, "count": 30000, "size": 1024}
 *   {"command": "reads", "uri": ..., "v2": true, "ledger": 7}
 *   {"command": "memory"}
 */
public final class Load {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final byte[] PASSWORD = new byte[0];
    private static final int READ_RUN = 1000;
    private static final int READ_BYTES = 4 << 20;
    private final Map<String, BookKeeper> clients = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        Load load = new Load();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                load.run(JSON.readTree(line), answer);
            } catch (Throwable thrown) {
                answer.put("error", thrown.toString());
            }
            System.out.println(answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private void run(JsonNode options, ObjectNode answer) throws Exception {
        switch (options.get("command").asText()) {
            case "adds": adds(options, answer); break;
            case "reads": reads(options, answer); break;
            case "memory": answer.put("peak_kib", peakKib()); break;
            default: throw new IllegalArgumentException(options.toString());
        }
    }

    private BookKeeper client(JsonNode options) throws Exception {
        String uri = options.get("uri").asText();
        boolean v2 = options.get("v2").asBoolean();
        if (!clients.containsKey(uri + v2)) {
            ClientConfiguration configuration = new ClientConfiguration();
            configuration.setMetadataServiceUri(uri);
            configuration.setZkTimeout(10_000);
            configuration.setAddEntryTimeout(30);
            configuration.setReadEntryTimeout(30);
            configuration.setUseV2WireProtocol(v2);
            configuration.setBatchReadEnabled(v2);
            configuration.setThrottleValue(0); // the default, 5,000 adds/s of one ledger, would be what is measured
            configuration.setNumChannelsPerBookie(1);
            configuration.setNumIOThreads(2);
            configuration.setNumWorkerThreads(1);
            clients.put(uri + v2, new BookKeeper(configuration));
        }
        return clients.get(uri + v2);
    }

    /** Keep "level" adds in flight, "warm" entries and then "count" that are timed. */
    private void adds(JsonNode options, ObjectNode answer) throws Exception {
        int level = options.get("level").asInt();
        int warm = options.get("warm").asInt();
        int count = options.get("count").asInt();
        byte[] payload = new byte[options.get("size").asInt()];
        new Random(1).nextBytes(payload);
        LedgerHandle handle = client(options).createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, PASSWORD);
        Semaphore room = new Semaphore(level);
        AtomicInteger failure = new AtomicInteger();
        long[] nanos = new long[warm + count];
        long began = System.nanoTime();
        for (int i = 0; i < warm + count; i++) {
            if (i == warm) {
                room.acquire(level);
                room.release(level);
                began = System.nanoTime();
            }
            room.acquire();
            int index = i;
            long sent = System.nanoTime();
            handle.asyncAddEntry(payload, (code, ledger, entry, context) -> {
                nanos[index] = System.nanoTime() - sent;
                failure.compareAndSet(0, code);
                room.release();
            }, null);
        }
        room.acquire(level);
        double seconds = (System.nanoTime() - began) / 1e9;
        if (failure.get() != 0) {
            throw new IllegalStateException("an add failed: " + BKException.getMessage(failure.get()));
        }
        handle.close();
        long[] timed = Arrays.copyOfRange(nanos, warm, warm + count);
        Arrays.sort(timed);
        answer.put("ledger", handle.getId());
        answer.put("per_s", count / seconds);
        answer.put("p50_ms", timed[count / 2] / 1e6);
        answer.put("p99_ms", timed[(int) (count * 0.99)] / 1e6);
    }

    /** Read a closed ledger from its first entry to its last, once. */
    private void reads(JsonNode options, ObjectNode answer) throws Exception {
        boolean batch = options.get("v2").asBoolean();
        LedgerHandle handle = client(options)
            .openLedgerNoRecovery(options.get("ledger").asLong(), BookKeeper.DigestType.CRC32C, PASSWORD);
        long last = handle.getLastAddConfirmed();
        long next = 0;
        long bytes = 0;
        long began = System.nanoTime();
        while (next <= last) {
            int run = (int) Math.min(READ_RUN, last - next + 1);
            try (LedgerEntries entries = batch ? handle.batchRead(next, run, READ_BYTES) : handle.read(next, next + run - 1)) {
                for (LedgerEntry entry : entries) {
                    bytes += entry.getEntryBuffer().readableBytes();
                    next = entry.getEntryId() + 1;
                }
            }
        }
        answer.put("per_s", (last + 1) / ((System.nanoTime() - began) / 1e9));
        answer.put("bytes", bytes);
        handle.close();
    }

    private static long peakKib() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        throw new IllegalStateException("no VmHWM in /proc/self/status");
    }
}
