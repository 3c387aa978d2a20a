import java.io.*;
import java.nio.file.*;

public class Main {
    public static void main(String[] words) throws Exception {
        OrdersTest.start();
        System.out.println(System.getProperty("bootstrap.servers"));
        OrdersTest.stop();
    }
}

@interface BeforeAll {}

@interface AfterAll {}

BLOCK
