import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.bookkeeper.client.BKException;

/**
 * Apache BookKeeper's own client as a server: one JSON command a line on standard input, one JSON answer a line on
 * standard output, matched by "id", in any order. Each command has a thread of its own, so a writer may be busy while
 * another command recovers its ledger.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Object OUT = new Object();

    public static void main(String[] arguments) throws Exception {
        Commands commands = new Commands();
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            threads.execute(() -> answer(commands, command));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(Commands commands, JsonNode command) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            commands.run(new Options(command), answer);
            answer.put("ok", true);
        } catch (Throwable thrown) {
            Throwable cause = thrown;
            while ((cause instanceof ExecutionException || cause instanceof CompletionException)
                    && cause.getCause() != null) {
                cause = cause.getCause();
            }
            answer.put("ok", false);
            answer.put("error", cause.getClass().getSimpleName());
            answer.put("code", cause instanceof BKException ? ((BKException) cause).getCode() : 0);
            answer.put("message", String.valueOf(cause.getMessage()));
        }
        answer.put("id", command.get("id").asLong());
        synchronized (OUT) {
            System.out.println(answer);
            System.out.flush();
        }
    }
}
