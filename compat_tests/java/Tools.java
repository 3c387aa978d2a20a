import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's tools one after the other in one JVM, which takes a tenth of the time of a JVM for each.
 *
 * A command is the number of its words, the words (the first one is the class), and its standard input. The answer is
 * its status, standard output and standard error. Numbers and lengths have four bytes.
 */
public final class Tools {
    /** A tool has ended itself. Some tools catch this, too, and go on: nothing that they say or do then counts. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static Integer ended;
    private static final List<Runnable> atItsEnd = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        Exit.setShutdownHookAdder((name, hook) -> atItsEnd.add(hook));
        DataInputStream commands = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        while (true) {
            int count;
            try {
                count = commands.readInt();
            } catch (EOFException nobodyAsks) {
                Runtime.getRuntime().halt(0);
                return;
            }
            String[] words = new String[count];
            for (int n = 0; n < count; n++) {
                words[n] = new String(bytes(commands), "UTF-8");
            }
            InputStream given = new ByteArrayInputStream(bytes(commands));
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream errors = new ByteArrayOutputStream();
            System.setIn(given);
            System.setOut(new PrintStream(out, true, "UTF-8"));
            System.setErr(new PrintStream(errors, true, "UTF-8"));
            int status = run(words);
            answers.writeInt(status);
            for (ByteArrayOutputStream told : List.of(out, errors)) {
                answers.writeInt(told.size());
                told.writeTo(answers);
            }
            answers.flush();
        }
    }

    private static byte[] bytes(DataInputStream commands) throws Exception {
        return commands.readNBytes(commands.readInt());
    }

    private static void end(int status) {
        if (ended == null) {
            ended = status;
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Ended();
    }

    private static int run(String[] words) {
        ended = null;
        PrintStream out = System.out;
        PrintStream errors = System.err;
        int status = status(() -> {
            String[] rest = java.util.Arrays.copyOfRange(words, 1, words.length);
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
        });
        if (ended != null) {
            status = ended;
        }
        System.setOut(out);
        System.setErr(errors);
        List<Runnable> hooks = List.copyOf(atItsEnd);
        atItsEnd.clear();
        for (Runnable hook : hooks) {
            status(hook::run);
        }
        return status;
    }

    private interface Work {
        void run() throws Throwable;
    }

    private static int status(Work work) {
        try {
            work.run();
            return 0;
        } catch (Throwable thrown) {
            Throwable error = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
            if (error instanceof Ended) {
                return ended;
            }
            System.err.print("Exception in thread \"main\" ");
            error.printStackTrace();
            return 1;
        }
    }
}
