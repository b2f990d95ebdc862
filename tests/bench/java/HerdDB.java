import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import herddb.server.Server;
import herddb.server.ServerConfiguration;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * A server of HerdDB (`serve`, with name=value of its configuration), or its JDBC driver under load (`load`): one JSON
 * command a line in, one JSON answer a line out, all commands on the same connections, so that its code is compiled
 * when it counts.
 *
 *   {"op": "create"}
 *   {"op": "bulk", "first": 1, "rows": 10000}
 *   {"op": "updates" | "selects", "callers": 64, "seconds": 5, "rows": 10000}
 */
public final class HerdDB {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String VALUE = "v".repeat(100);
    private static final int BATCH_ROWS = 1000;
    private final List<Connection> connections = new ArrayList<>();
    private final String url;

    private HerdDB(String url) {
        this.url = url;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("serve")) {
            serve(Arrays.asList(arguments).subList(1, arguments.length));
            return;
        }
        HerdDB load = new HerdDB(arguments[1]);
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

    private static void serve(List<String> settings) throws Exception {
        Properties properties = new Properties();
        for (String setting : settings) {
            String[] parts = setting.split("=", 2);
            properties.setProperty(parts[0], parts[1]);
        }
        try (Server server = new Server(new ServerConfiguration(properties))) {
            server.start();
            Thread.currentThread().join();
        }
    }

    private Connection connection(int number) throws SQLException {
        while (connections.size() <= number) {
            Connection opened = DriverManager.getConnection(url);
            opened.setAutoCommit(true);
            connections.add(opened);
        }
        return connections.get(number);
    }

    private void run(JsonNode options, ObjectNode answer) throws Exception {
        String op = options.get("op").asText();
        switch (op) {
            case "create": create(); break;
            case "bulk": bulk(options, answer); break;
            case "updates":
            case "selects": drive(op.equals("updates"), options, answer); break;
            default: throw new IllegalArgumentException(options.toString());
        }
    }

    private void create() throws SQLException {
        try (Statement statement = connection(0).createStatement()) {
            try {
                statement.executeUpdate("DROP TABLE t");
            } catch (SQLException isNotThere) {
                // The first time.
            }
            statement.executeUpdate("CREATE TABLE t (id int primary key, n int, v string)");
        }
    }

    private void bulk(JsonNode options, ObjectNode answer) throws SQLException {
        int first = options.get("first").asInt();
        int rows = options.get("rows").asInt();
        Connection connection = connection(0);
        long began = System.nanoTime();
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO t (id, n, v) VALUES (?, ?, ?)")) {
            for (int row = 0; row < rows; row++) {
                insert.setInt(1, first + row);
                insert.setInt(2, 0);
                insert.setString(3, VALUE);
                insert.addBatch();
                if ((row + 1) % BATCH_ROWS == 0 || row + 1 == rows) {
                    insert.executeBatch();
                    connection.commit();
                }
            }
        } finally {
            connection.setAutoCommit(true);
        }
        answer.put("per_s", rows * 1e9 / (System.nanoTime() - began));
        answer.put("count", rows);
    }

    private void drive(boolean isUpdate, JsonNode options, ObjectNode answer) throws Exception {
        int callers = options.get("callers").asInt();
        int rows = options.get("rows").asInt();
        long length = (long) (options.get("seconds").asDouble() * 1e9);
        String sql = isUpdate ? "UPDATE t SET n = n + 1, v = ? WHERE id = ?" : "SELECT v FROM t WHERE id = ?";
        for (int number = 0; number < callers; number++) {
            connection(number);
        }
        ExecutorService threads = Executors.newFixedThreadPool(callers);
        try {
            long began = System.nanoTime();
            List<Future<List<Long>>> all = new ArrayList<>();
            for (int number = 0; number < callers; number++) {
                Connection connection = connection(number);
                Random random = new Random(number);
                Callable<List<Long>> call = () -> calls(connection, sql, isUpdate, random, rows, began + length);
                all.add(threads.submit(call));
            }
            List<Long> latencies = new ArrayList<>();
            for (Future<List<Long>> one : all) {
                latencies.addAll(one.get());
            }
            long took = System.nanoTime() - began;
            latencies.sort(null);
            answer.put("per_s", latencies.size() * 1e9 / took);
            answer.put("p50_ms", latencies.get(latencies.size() / 2) / 1e6);
            answer.put("p99_ms", latencies.get((int) Math.min(latencies.size() - 1, latencies.size() * 0.99)) / 1e6);
            answer.put("count", latencies.size());
        } finally {
            threads.shutdownNow();
        }
    }

    private static List<Long> calls(
            Connection connection, String sql, boolean isUpdate, Random random, int rows, long end) throws SQLException {
        List<Long> latencies = new ArrayList<>();
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (long at = System.nanoTime(); at < end; ) {
                int key = 1 + random.nextInt(rows);
                if (isUpdate) {
                    statement.setString(1, VALUE);
                    statement.setInt(2, key);
                    if (statement.executeUpdate() != 1) {
                        throw new IllegalStateException("no row " + key);
                    }
                } else {
                    statement.setInt(1, key);
                    try (ResultSet found = statement.executeQuery()) {
                        if (!found.next() || !found.getString(1).equals(VALUE)) {
                            throw new IllegalStateException("no row " + key);
                        }
                    }
                }
                long now = System.nanoTime();
                latencies.add(now - at);
                at = now;
            }
        }
        return latencies;
    }
}
