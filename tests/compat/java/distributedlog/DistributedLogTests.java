package org.apache.distributedlog;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs one class of DistributedLog's tests, on the cluster that LocalDLMEmulator points to. One line of JSON for each
 * test that ended: {"test": "testSimple", "failure": null} or the trace of what it threw; one for each wish,
 * {"ask": "add"} or {"ask": "remove"} a bookie, which is fulfilled when a line has come in; and {"end": true}. What the
 * tests print goes to the log.
 */
public final class DistributedLogTests extends RunListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
    private static final BufferedReader IN =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final Map<Description, Failure> failures = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        JUnitCore core = new JUnitCore();
        core.addListener(new DistributedLogTests());
        core.run(Class.forName(arguments[0]));
        OUT.println(JSON.createObjectNode().put("end", true));
        Runtime.getRuntime().halt(0);
    }

    /** Ask for a change of the bookies, and wait until it is done. */
    static synchronized void ask(String wish) throws IOException {
        OUT.println(JSON.createObjectNode().put("ask", wish));
        if (IN.readLine() == null) {
            throw new IOException("nobody is there who could " + wish + " a bookie");
        }
    }

    @Override
    public void testFailure(Failure failure) {
        failures.putIfAbsent(failure.getDescription(), failure);
        if (!failure.getDescription().isTest()) {
            tell("set up and tear down", failure);
        }
    }

    @Override
    public void testFinished(Description test) {
        tell(test.getMethodName(), failures.get(test));
    }

    private void tell(String name, Failure failure) {
        ObjectNode line = JSON.createObjectNode().put("test", name);
        line.put("failure", failure == null ? null : failure.getTrace());
        OUT.println(line);
    }
}
