import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.KV;
import io.etcd.jetcd.Lease;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.kv.GetResponse;
import io.etcd.jetcd.kv.TxnResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.DeleteOption;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchEvent;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** What a Java program does with jetcd; ends with an error where something is not as it should be. */
public final class Jetcd {
    private static ByteSequence bytes(String text) {
        return ByteSequence.from(text, StandardCharsets.UTF_8);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (Client client = Client.builder().endpoints(arguments).build()) {
            KV kv = client.getKVClient();
            kv.put(bytes("j/a"), bytes("1")).get();
            GetResponse got = kv.get(bytes("j/"), GetOption.builder().isPrefix(true).build()).get();
            check(got.getCount() == 1 && got.getKvs().get(0).getValue().toString().equals("1"), "get");
            long revision = got.getHeader().getRevision();
            LinkedBlockingQueue<WatchEvent> events = new LinkedBlockingQueue<>();
            Watch.Watcher watcher = client.getWatchClient().watch(
                bytes("j/"),
                WatchOption.builder().isPrefix(true).withRevision(revision + 1).withPrevKV(true).build(),
                response -> events.addAll(response.getEvents()));
            TxnResponse done = kv.txn()
                .If(new Cmp(bytes("j/a"), Cmp.Op.EQUAL, CmpTarget.value(bytes("1"))))
                .Then(Op.put(bytes("j/a"), bytes("2"), PutOption.DEFAULT), Op.put(bytes("j/b"), bytes("3"), PutOption.DEFAULT))
                .Else(Op.get(bytes("j/a"), GetOption.DEFAULT))
                .commit().get();
            check(done.isSucceeded(), "txn");
            WatchEvent first = events.poll(30, TimeUnit.SECONDS);
            WatchEvent second = events.poll(30, TimeUnit.SECONDS);
            check(first.getKeyValue().getModRevision() == second.getKeyValue().getModRevision(), "one revision");
            check(first.getKeyValue().getModRevision() == done.getHeader().getRevision(), "the header's revision");
            check(first.getPrevKV().getValue().toString().equals("1"), "the value before");
            Lease leases = client.getLeaseClient();
            long lease = leases.grant(30).get().getID();
            kv.put(bytes("j/l"), bytes("x"), PutOption.builder().withLeaseId(lease).build()).get();
            check(leases.keepAliveOnce(lease).get().getTTL() == 30, "kept alive");
            leases.revoke(lease).get();
            check(kv.get(bytes("j/l")).get().getCount() == 0, "a revoked lease");
            long deleted = kv.delete(bytes("j/"), DeleteOption.builder().isPrefix(true).build()).get().getDeleted();
            check(deleted == 2, "deleted " + deleted);
            WatchEvent last = null;
            for (int n = 0; n < 4; n++) {
                last = events.poll(30, TimeUnit.SECONDS);
            }
            check(last.getEventType() == WatchEvent.EventType.DELETE, "a removal");
            watcher.close();
            check(client.getClusterClient().listMember().get().getMembers().size() > 0, "members");
        }
        System.out.println("well");
    }
}
