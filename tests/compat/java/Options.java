import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import org.apache.bookkeeper.client.BookKeeper.DigestType;

/** The options of one command, each with its default. */
final class Options {
    final JsonNode json;

    Options(JsonNode json) {
        this.json = json;
    }

    String text(String name, String otherwise) {
        return json.hasNonNull(name) ? json.get(name).asText() : otherwise;
    }

    long number(String name, long otherwise) {
        return json.hasNonNull(name) ? json.get(name).asLong() : otherwise;
    }

    int small(String name, int otherwise) {
        return (int) number(name, otherwise);
    }

    boolean flag(String name) {
        return json.hasNonNull(name) && json.get(name).asBoolean();
    }

    boolean has(String name) {
        return json.hasNonNull(name);
    }

    byte[] password() {
        return text("password", "").getBytes(StandardCharsets.UTF_8);
    }

    DigestType digest() {
        return DigestType.valueOf(text("digest", "CRC32C"));
    }

    org.apache.bookkeeper.client.api.DigestType apiDigest() {
        return org.apache.bookkeeper.client.api.DigestType.valueOf(text("digest", "CRC32C"));
    }

    long ledger() {
        return json.get("ledger").asLong();
    }
}
