import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.LedgerHandleAdv;

/** A ledger being written, by command or by a thread of its own ("race"). */
final class Writer {
    private static final int IN_FLIGHT_MAX = 10_000;

    final LedgerHandle handle;
    private final AtomicLong highest = new AtomicLong(-1);
    private final AtomicInteger error = new AtomicInteger();
    private final CountDownLatch stopped = new CountDownLatch(1);
    private volatile boolean stop;

    Writer(LedgerHandle handle) {
        this.handle = handle;
    }

    /** Append entries of which many are in flight; wait for the fate of all of them. */
    void append(int count, int size, long timeoutS) throws Exception {
        Semaphore room = new Semaphore(IN_FLIGHT_MAX);
        long first = handle.getLastAddPushed() + 1;
        for (int i = 0; i < count; i++) {
            room.acquire();
            add(first + i, size, room);
        }
        await(room, IN_FLIGHT_MAX, timeoutS);
    }

    /** Append with ids of the caller's choice, in the order given. */
    void appendAt(long[] entries, int size, long timeoutS) throws Exception {
        Semaphore room = new Semaphore(IN_FLIGHT_MAX);
        for (long entry : entries) {
            room.acquire();
            ((LedgerHandleAdv) handle).asyncAddEntry(entry, Payload.of(entry, size), 0, Payload.of(entry, size).length,
                (code, ledger, id, context) -> done(code, id, room), null);
        }
        await(room, IN_FLIGHT_MAX, timeoutS);
    }

    /** Append until told to stop or until an append fails. */
    void race(int inFlight, int size) {
        Thread thread = new Thread(() -> {
            Semaphore room = new Semaphore(inFlight);
            try {
                for (long entry = handle.getLastAddPushed() + 1; !stop && error.get() == 0; entry++) {
                    room.acquire();
                    add(entry, size, room);
                }
                await(room, inFlight, 30);
            } catch (Exception unexpected) {
                error.compareAndSet(0, BKException.Code.UnexpectedConditionException);
            } finally {
                stopped.countDown();
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    void awaitRace(boolean ask, long timeoutS) throws Exception {
        stop = ask;
        if (!stopped.await(timeoutS, TimeUnit.SECONDS)) {
            throw new TimeoutException("the writer has not stopped after " + timeoutS + " s");
        }
    }

    void describe(ObjectNode answer) {
        answer.put("ledger", handle.getId());
        answer.put("acked", highest.get());
        answer.put("lac", handle.getLastAddConfirmed());
        answer.put("length", handle.getLength());
        answer.put("failed", error.get() == 0 ? null : BKException.getMessage(error.get()));
        answer.put("failed_code", error.get());
        answer.put("segments", handle.getLedgerMetadata().getAllEnsembles().size());
    }

    private void add(long entry, int size, Semaphore room) {
        handle.asyncAddEntry(Payload.of(entry, size), (code, ledger, id, context) -> done(code, id, room), null);
    }

    private void done(int code, long entry, Semaphore room) {
        if (code == 0) {
            highest.accumulateAndGet(entry, Math::max);
        } else {
            error.compareAndSet(0, code);
        }
        room.release();
    }

    private static void await(Semaphore room, int all, long timeoutS) throws Exception {
        if (!room.tryAcquire(all, timeoutS, TimeUnit.SECONDS)) {
            throw new TimeoutException("appends without an answer after " + timeoutS + " s");
        }
    }
}
