import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import javax.security.auth.login.Configuration;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.CreateAdvBuilder;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;

/** The commands, by name. Clients are kept by cluster and protocol, writers by their ledger. */
final class Commands {
    private final Map<String, BookKeeper> clients = new HashMap<>();
    private final Map<String, Writer> writers = new ConcurrentHashMap<>();

    void run(Options options, ObjectNode answer) throws Exception {
        switch (options.text("command", "")) {
            case "create": create(options, answer); break;
            case "append": writer(options).append(options.small("n", 1), options.small("size", 100), timeout(options));
                writer(options).describe(answer); break;
            case "append_at": appendAt(options, answer); break;
            case "force": writer(options).handle.force().get(timeout(options), TimeUnit.SECONDS);
                writer(options).describe(answer); break;
            case "close": writer(options).handle.close(); writer(options).describe(answer); break;
            case "race": writer(options).race(options.small("in_flight", 20), options.small("size", 100)); break;
            case "race_progress": writer(options).describe(answer); break;
            case "race_end": writer(options).awaitRace(options.flag("stop"), timeout(options));
                writer(options).describe(answer); break;
            case "recover": try (LedgerHandle handle = open(options, true)) { describe(handle, answer); } break;
            case "read": read(options, answer); break;
            case "tail": tail(options, answer); break;
            case "lac": try (LedgerHandle handle = open(options, false)) { lac(handle, answer); } break;
            case "metadata": metadata(options, answer); break;
            case "list": list(options, answer); break;
            case "delete": client(options).deleteLedger(options.ledger()); break;
            case "entries": answer.put("count", admin(options).asyncGetListOfEntriesOfLedger(
                BookieId.parse(options.text("bookie", "")), options.ledger()).get(timeout(options), TimeUnit.SECONDS)
                .getTotalNumOfAvailableEntries()); break;
            case "bookies": bookies(options, answer); break;
            case "ping": break;
            default: throw new IllegalArgumentException("no such command: " + options.text("command", ""));
        }
    }

    private static long timeout(Options options) {
        return options.number("timeout_s", 60);
    }

    private synchronized BookKeeper client(Options options) throws Exception {
        String uri = options.text("uri", "");
        boolean v2 = options.flag("v2");
        int explicitLacMs = options.small("explicit_lac_ms", 0);
        String ca = options.text("tls_ca", "");
        String login = options.text("login_section", "");
        String key = uri + v2 + explicitLacMs + ca + login;
        if (!clients.containsKey(key)) {
            ClientConfiguration configuration = new ClientConfiguration();
            configuration.setMetadataServiceUri(uri);
            configuration.setZkTimeout(10_000);
            configuration.setAddEntryTimeout(10);
            configuration.setReadEntryTimeout(10);
            configuration.setUseV2WireProtocol(v2);
            configuration.setBatchReadEnabled(true);
            configuration.setExplictLacInterval(explicitLacMs);
            if (!ca.isEmpty()) {
                configuration.setTLSProviderFactoryClass("org.apache.bookkeeper.tls.TLSContextFactory");
                configuration.setTLSProvider("JDK");
                configuration.setTLSTrustStoreType("PEM");
                configuration.setTLSTrustStore(ca);
                configuration.setTLSClientAuthentication(true);
                configuration.setTLSKeyStoreType("PEM");
                configuration.setTLSKeyStore(options.text("tls_key", ""));
                configuration.setTLSCertificatePath(options.text("tls_cert", ""));
                configuration.setHostnameVerificationEnabled(true);
            }
            if (!login.isEmpty()) {
                System.setProperty("java.security.auth.login.config", options.text("login_file", ""));
                Configuration.setConfiguration(null); // The file is read again.
                configuration.setClientAuthProviderFactoryClass("org.apache.bookkeeper.sasl.SASLClientProviderFactory");
                configuration.setProperty("saslJaasClientSectionName", login);
            }
            configuration.setNumIOThreads(2);
            configuration.setNumWorkerThreads(2);
            clients.put(key, new BookKeeper(configuration));
        }
        return clients.get(key);
    }

    private BookKeeperAdmin admin(Options options) throws Exception {
        return new BookKeeperAdmin(client(options), new ClientConfiguration());
    }

    private Writer writer(Options options) {
        Writer writer = writers.get(options.text("uri", "") + options.ledger());
        if (writer == null) {
            throw new IllegalArgumentException("ledger " + options.ledger() + " is not written here");
        }
        return writer;
    }

    private void create(Options options, ObjectNode answer) throws Exception {
        Map<String, byte[]> custom = new HashMap<>();
        if (options.has("custom")) {
            options.json.get("custom").fields().forEachRemaining(
                field -> custom.put(field.getKey(), field.getValue().asText().getBytes(StandardCharsets.UTF_8)));
        }
        CreateBuilder builder = client(options).newCreateLedgerOp()
            .withEnsembleSize(options.small("ensemble", 3))
            .withWriteQuorumSize(options.small("write_quorum", 3))
            .withAckQuorumSize(options.small("ack_quorum", 2))
            .withDigestType(options.apiDigest())
            .withPassword(options.password())
            .withCustomMetadata(custom);
        if (options.flag("deferred_sync")) {
            builder = builder.withWriteFlags(WriteFlag.DEFERRED_SYNC);
        }
        LedgerHandle handle;
        if (options.flag("adv")) {
            CreateAdvBuilder adv = builder.makeAdv();
            if (options.has("new_ledger")) {
                adv = adv.withLedgerId(options.number("new_ledger", -1));
            }
            handle = (LedgerHandle) adv.execute().get(timeout(options), TimeUnit.SECONDS);
        } else {
            WriteHandle created = builder.execute().get(timeout(options), TimeUnit.SECONDS);
            handle = (LedgerHandle) created;
        }
        writers.put(options.text("uri", "") + handle.getId(), new Writer(handle));
        answer.put("ledger", handle.getId());
    }

    private void appendAt(Options options, ObjectNode answer) throws Exception {
        JsonNode given = options.json.get("entries");
        long[] entries = new long[given.size()];
        for (int i = 0; i < entries.length; i++) {
            entries[i] = given.get(i).asLong();
        }
        writer(options).appendAt(entries, options.small("size", 100), timeout(options));
        writer(options).describe(answer);
    }

    private LedgerHandle open(Options options, boolean recover) throws Exception {
        BookKeeper client = client(options);
        return recover
            ? client.openLedger(options.ledger(), options.digest(), options.password())
            : client.openLedgerNoRecovery(options.ledger(), options.digest(), options.password());
    }

    private static void describe(LedgerHandle handle, ObjectNode answer) {
        answer.put("lac", handle.getLastAddConfirmed());
        answer.put("length", handle.getLength());
        answer.put("closed", handle.isClosed());
        answer.put("segments", handle.getLedgerMetadata().getAllEnsembles().size());
    }

    /** Read entries "first" to "last" (the LAC if not given), "how": plain, batch or unconfirmed. */
    private void read(Options options, ObjectNode answer) throws Exception {
        try (LedgerHandle handle = open(options, options.flag("recover"))) {
            describe(handle, answer);
            long last = options.number("last", handle.getLastAddConfirmed());
            long next = options.number("first", 0);
            long bad = 0;
            long count = 0;
            String how = options.text("how", "plain");
            while (next <= last) {
                long until = Math.min(last, next + 499);
                long before = next;
                try (LedgerEntries entries = how.equals("batch") ? handle.batchRead(next, (int) (until - next + 1), 1 << 20)
                        : how.equals("unconfirmed") ? handle.readUnconfirmed(next, until) : handle.read(next, until)) {
                    for (LedgerEntry entry : entries) {
                        bad += entry.getEntryId() == next && Payload.fits(next, entry.getEntryBytes()) ? 0 : 1;
                        count++;
                        next++;
                    }
                }
                if (next == before) {
                    throw new IllegalStateException("a read of entry " + next + " came back empty");
                }
            }
            answer.put("count", count);
            answer.put("bad", bad);
        }
    }

    /** Follow a ledger by long polls until "n" entries were seen. */
    private void tail(Options options, ObjectNode answer) throws Exception {
        LedgerHandle handle = open(options, false);
        long next = options.number("first", 0);
        long count = 0;
        long bad = 0;
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(timeout(options));
        while (count < options.number("n", 1) && System.nanoTime() < until) {
            try (LastConfirmedAndEntry seen =
                    handle.readLastAddConfirmedAndEntry(next, options.number("poll_ms", 1000), false)) {
                if (seen.hasEntry()) {
                    bad += Payload.fits(next, seen.getEntry().getEntryBytes()) ? 0 : 1;
                    count++;
                    next++;
                } else if (handle.isClosed() && next > handle.getLastAddConfirmed()) {
                    break;
                }
            }
        }
        answer.put("count", count);
        answer.put("bad", bad);
        describe(handle, answer);
    }

    private static void lac(LedgerHandle handle, ObjectNode answer) throws Exception {
        describe(handle, answer);
        answer.put("read_lac", handle.readLastConfirmed());
        answer.put("try_read_lac", handle.tryReadLastConfirmed());
        answer.put("explicit_lac", handle.readExplicitLastConfirmed());
    }

    private void metadata(Options options, ObjectNode answer) throws Exception {
        LedgerMetadata metadata = client(options).getLedgerManager().readLedgerMetadata(options.ledger())
            .get(timeout(options), TimeUnit.SECONDS).getValue();
        answer.put("state", metadata.getState().name());
        answer.put("format", metadata.getMetadataFormatVersion());
        answer.put("ensemble", metadata.getEnsembleSize());
        answer.put("write_quorum", metadata.getWriteQuorumSize());
        answer.put("ack_quorum", metadata.getAckQuorumSize());
        answer.put("last", metadata.getLastEntryId());
        answer.put("length", metadata.getLength());
        answer.put("digest", String.valueOf(metadata.getDigestType()));
        answer.put("created_ms", metadata.getCtime());
        ObjectNode custom = answer.putObject("custom");
        metadata.getCustomMetadata().forEach((key, value) -> custom.put(key, new String(value, StandardCharsets.UTF_8)));
        ObjectNode segments = answer.putObject("ensembles");
        for (Map.Entry<Long, ? extends List<BookieId>> segment : metadata.getAllEnsembles().entrySet()) {
            ArrayNode bookies = segments.putArray(Long.toString(segment.getKey()));
            segment.getValue().forEach(bookie -> bookies.add(bookie.toString()));
        }
    }

    private void list(Options options, ObjectNode answer) throws Exception {
        ArrayNode ids = answer.putArray("ledgers");
        java.util.List<Long> found = new java.util.ArrayList<>();
        admin(options).listLedgers().forEach(found::add);
        Collections.sort(found);
        found.forEach(ids::add);
    }

    private void bookies(Options options, ObjectNode answer) throws Exception {
        BookKeeperAdmin admin = admin(options);
        ArrayNode writable = answer.putArray("writable");
        admin.getAvailableBookies().forEach(bookie -> writable.add(bookie.toString()));
        ArrayNode readOnly = answer.putArray("read_only");
        admin.getReadOnlyBookies().forEach(bookie -> readOnly.add(bookie.toString()));
        ObjectNode room = answer.putObject("free");
        client(options).getBookieInfo().forEach((bookie, info) -> room.put(bookie.toString(), info.getFreeDiskSpace()));
    }
}
