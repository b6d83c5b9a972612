package lakeindex.testing;

import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/** Hive's metastore over a database of its own, on loopback: by its own main it would listen on all addresses. */
public class Metastore implements Runnable {
    private final TThreadPoolServer server;

    public Metastore(String folder) throws Exception {
        HiveConf conf = new HiveConf();
        conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + folder + "/db;create=true");
        conf.set("datanucleus.schema.autoCreateAll", "true");
        conf.set("hive.metastore.schema.verification", "false");
        conf.set("hive.metastore.uris", "");
        conf.set("hive.metastore.warehouse.dir", folder + "/warehouse");
        IHMSHandler handler = RetryingHMSHandler.getProxy(conf, new HiveMetaStore.HMSHandler("tests", conf, false), true);
        TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", 0));
        this.port = socket.getServerSocket().getLocalPort();
        TThreadPoolServer.Args settings = new TThreadPoolServer.Args(socket);
        settings.processor(new TSetIpAddressProcessor(handler));
        this.server = new TThreadPoolServer(settings);
        Thread thread = new Thread(this);
        thread.setDaemon(true);
        thread.start();
    }

    public final int port;

    public void run() {
        this.server.serve();
    }
}
