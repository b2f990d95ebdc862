package org.apache.distributedlog;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.shims.zk.ZooKeeperServerShim;
import org.apache.commons.lang3.tuple.Pair;
import org.apache.distributedlog.impl.metadata.BKDLConfig;
import org.apache.distributedlog.metadata.DLMetadata;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.Watcher.Event.KeeperState;

/**
 * Stands in the place of DistributedLog's class of this name, by which its tests start a cluster. This one starts
 * nothing: ZooKeeper runs at the port that the property `outer.zookeeper.port` names, with bookies under /ledgers.
 * What DistributedLog's tests left in ZooKeeper goes when the next of their classes begins.
 */
public class LocalDLMEmulator {
    public static final String DLOG_NAMESPACE = "/messaging/distributedlog";
    private static final String HOST = "127.0.0.1";
    private static final String LEDGERS = "/ledgers";
    private static final int SESSION_S = 10;
    private static final int START_S_MAX = 60;
    private final int bookies;

    private LocalDLMEmulator(int bookies) {
        this.bookies = bookies;
    }

    /** Takes what the tests say of the cluster; only the number of bookies counts. */
    public static class Builder {
        private int bookies = 3;

        public Builder numBookies(int count) {
            bookies = count;
            return this;
        }

        public Builder zkHost(String host) {
            return this;
        }

        public Builder zkPort(int port) {
            return this;
        }

        public Builder zkTimeoutSec(int seconds) {
            return this;
        }

        public Builder shouldStartZK(boolean should) {
            return this;
        }

        public Builder serverConf(ServerConfiguration conf) {
            return this;
        }

        public LocalDLMEmulator build() {
            return new LocalDLMEmulator(bookies);
        }
    }

    public static Builder newBuilder() {
        return new Builder();
    }

    public void start() throws Exception {
        ZooKeeper zookeeper = connectZooKeeper(HOST, port());
        try {
            for (String name : zookeeper.getChildren("/", false)) {
                if (!name.equals("zookeeper") && !LEDGERS.equals("/" + name)) {
                    clear(zookeeper, "/" + name);
                }
            }
        } finally {
            zookeeper.close();
        }
        int found = checkBookiesUp(bookies, START_S_MAX);
        if (found < bookies) {
            throw new IllegalStateException("the tests want " + bookies + " bookies, there are " + found);
        }
        DLMetadata.create(new BKDLConfig(getZkServers(), LEDGERS)).create(getUri());
    }

    /** Nodes that a test has locked for others stay, since no other class uses their names; those of sessions go. */
    private static void clear(ZooKeeper zookeeper, String path) throws KeeperException, InterruptedException {
        try {
            for (String name : zookeeper.getChildren(path, false)) {
                clear(zookeeper, path + "/" + name);
            }
            zookeeper.delete(path, -1);
        } catch (KeeperException.NoAuthException | KeeperException.NotEmptyException
            | KeeperException.NoNodeException locked) {
            return;
        }
    }

    public void teardown() {
        // Who started the servers ends them.
    }

    public String getZkServers() {
        return HOST + ":" + port();
    }

    public URI getUri() {
        return URI.create("distributedlog://" + getZkServers() + DLOG_NAMESPACE);
    }

    public int checkBookiesUp(int count, int seconds) throws Exception {
        ZooKeeper zookeeper = connectZooKeeper(HOST, port());
        try {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
            while (true) {
                List<String> names = zookeeper.getChildren(LEDGERS + "/available", false);
                names.remove("readonly");
                if (names.size() >= count || System.nanoTime() > end) {
                    return names.size();
                }
                Thread.sleep(100);
            }
        } finally {
            zookeeper.close();
        }
    }

    public void addBookie() throws IOException {
        DistributedLogTests.ask("add");
    }

    public void removeBookie() throws IOException {
        DistributedLogTests.ask("remove");
    }

    public static String getBkLedgerPath() {
        return LEDGERS;
    }

    public static ZooKeeper connectZooKeeper(String host, int port)
        throws IOException, KeeperException, InterruptedException {
        return connectZooKeeper(host, port, SESSION_S);
    }

    public static ZooKeeper connectZooKeeper(String host, int port, int seconds)
        throws IOException, KeeperException, InterruptedException {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper zookeeper = new ZooKeeper(host + ":" + port, (int) TimeUnit.SECONDS.toMillis(seconds), event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        if (!connected.await(START_S_MAX, TimeUnit.SECONDS)) {
            zookeeper.close();
            throw new IOException("no session of " + host + ":" + port + " within " + START_S_MAX + " s");
        }
        return zookeeper;
    }

    public static URI createDLMURI(String path) {
        return createDLMURI(HOST + ":" + port(), path);
    }

    public static URI createDLMURI(String servers, String path) {
        return URI.create("distributedlog://" + servers + DLOG_NAMESPACE + path);
    }

    public static Pair<ZooKeeperServerShim, Integer> runZookeeperOnAnyPort(File folder) {
        return runZookeeperOnAnyPort(0, folder);
    }

    public static Pair<ZooKeeperServerShim, Integer> runZookeeperOnAnyPort(int first, File folder) {
        return Pair.of(new OuterZooKeeper(), port());
    }

    private static int port() {
        return Integer.parseInt(System.getProperty("outer.zookeeper.port"));
    }

    private static final class OuterZooKeeper implements ZooKeeperServerShim {
        @Override
        public void initialize(File snapshots, File logs, int port, int connections) {
            // It runs.
        }

        @Override
        public void start() {
            // It runs.
        }

        @Override
        public void stop() {
            // It goes on.
        }
    }
}
