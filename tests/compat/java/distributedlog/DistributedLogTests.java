package org.apache.distributedlog;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs one class of DistributedLog's tests, of JUnit 4 or 5, on the cluster that LocalDLMEmulator points to. One line of
 * JSON for each test that ended: {"test": "testSimple", "failure": null} or the trace of what it threw; one for each
 * wish, {"ask": "add"} or {"ask": "remove"} a bookie, which is fulfilled when a line has come in; and {"end": true}.
 * What the tests print goes to the log.
 */
public final class DistributedLogTests implements TestExecutionListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
    private static final BufferedReader IN =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        Class<?> tests = Class.forName(arguments[0]);
        LauncherFactory.create().execute(
            LauncherDiscoveryRequestBuilder.request().selectors(DiscoverySelectors.selectClass(tests)).build(),
            new DistributedLogTests());
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
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        boolean failed = result.getStatus() == TestExecutionResult.Status.FAILED;
        if (test.isTest()) {
            tell(nameOf(test), failed ? traceOf(result) : null);
        } else if (failed) {
            tell("set up and tear down", traceOf(result));
        }
    }

    private static String nameOf(TestIdentifier test) {
        return test.getSource()
            .filter(MethodSource.class::isInstance)
            .map(source -> ((MethodSource) source).getMethodName())
            .orElse(test.getDisplayName());
    }

    private static String traceOf(TestExecutionResult result) {
        StringWriter trace = new StringWriter();
        result.getThrowable().ifPresent(thrown -> thrown.printStackTrace(new PrintWriter(trace)));
        return trace.toString();
    }

    private static void tell(String name, String trace) {
        ObjectNode line = JSON.createObjectNode().put("test", name);
        line.put("failure", trace);
        OUT.println(line);
    }
}
