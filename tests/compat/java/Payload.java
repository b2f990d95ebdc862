import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** What entry N of a test ledger holds, so that whoever reads it can check it: "N:" and one letter, up to the size. */
final class Payload {
    private Payload() {}

    static byte[] of(long entry, int size) {
        byte[] head = (entry + ":").getBytes(StandardCharsets.US_ASCII);
        byte[] payload = new byte[Math.max(size, head.length)];
        Arrays.fill(payload, (byte) ('a' + (int) (entry % 26)));
        System.arraycopy(head, 0, payload, 0, head.length);
        return payload;
    }

    static boolean fits(long entry, byte[] payload) {
        return Arrays.equals(payload, of(entry, payload.length));
    }
}
