package lakeindex.testing;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.function.Consumer;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.HTTPRequest;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.LoadTableResponse;
import org.apache.iceberg.util.Pair;

/** A REST catalog over another one, by Iceberg's own adapter, for those who bring a token. */
public class RestCatalog extends RESTCatalogAdapter implements HttpHandler {
    private final String token;
    private final Map lent;

    /** lent: what the catalog gives whoever loads a table, to read its files by. */
    public RestCatalog(Catalog catalog, String token, Map lent) {
        super(catalog);
        this.token = token;
        this.lent = lent;
    }

    /** Listens on loopback, and says on which port. */
    public int start() throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0), 0);
        server.createContext("/", this);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.start();
        return server.getAddress().getPort();
    }

    public void handle(HttpExchange exchange) {
        try {
            this.answer(exchange);
        } catch (Throwable error) {
            error.printStackTrace();
        } finally {
            exchange.close();
        }
    }

    private void answer(HttpExchange exchange) throws Exception {
        final ErrorResponse[] failed = new ErrorResponse[1];
        Object body = null;
        if (("Bearer " + this.token).equals(exchange.getRequestHeaders().getFirst("Authorization"))) {
            try {
                body = this.asked(exchange, failed);
            } catch (RuntimeException error) {
                if (failed[0] == null) throw error;
            }
        } else {
            failed[0] = ErrorResponse.builder().responseCode(401).withType("NotAuthorizedException").withMessage("no token").build();
        }
        if (body instanceof LoadTableResponse && !this.lent.isEmpty()) {
            LoadTableResponse loaded = (LoadTableResponse) body;
            body = LoadTableResponse.builder().withTableMetadata(loaded.tableMetadata()).addAllConfig(this.lent).build();
        }
        Object said = failed[0] != null ? failed[0] : body;
        int code = failed[0] != null ? failed[0].code().intValue() : said == null ? 204 : 200;
        if (said == null || "HEAD".equals(exchange.getRequestMethod())) {
            exchange.sendResponseHeaders(code, -1L);
            return;
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        mapper().writeValue(bytes, said);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(code, (long) bytes.size());
        exchange.getResponseBody().write(bytes.toByteArray());
    }

    private Object asked(HttpExchange exchange, final ErrorResponse[] failed) throws Exception {
        HTTPRequest.HTTPMethod method = HTTPRequest.HTTPMethod.valueOf(exchange.getRequestMethod());
        String path = exchange.getRequestURI().getRawPath().substring(1);
        Pair found = (Pair) hidden("RESTCatalogAdapter$Route", "from", new Class[] {HTTPRequest.HTTPMethod.class, String.class}).invoke(null, new Object[] {method, path});
        Class wanted = null;
        Object body = null;
        if (found != null) {
            Object route = found.first();
            wanted = (Class) hidden("RESTCatalogAdapter$Route", "responseClass", new Class[0]).invoke(route, new Object[0]);
            Class given = (Class) hidden("RESTCatalogAdapter$Route", "requestClass", new Class[0]).invoke(route, new Object[0]);
            if (given != null) body = mapper().readValue(exchange.getRequestBody(), given);
        }
        HTTPRequest request = this.buildRequest(method, path, parameters(exchange), new HashMap(), body);
        return this.execute(request, wanted, new Consumer() {
            public void accept(Object error) {
                failed[0] = (ErrorResponse) error;
                throw new IllegalStateException("refused");
            }
        }, new Consumer() {
            public void accept(Object headers) {}
        });
    }

    private static Map parameters(HttpExchange exchange) throws Exception {
        Map found = new HashMap();
        String query = exchange.getRequestURI().getRawQuery();
        if (query == null) return found;
        String[] each = query.split("&");
        for (int n = 0; n < each.length; n++) {
            int at = each[n].indexOf('=');
            if (at > 0) found.put(each[n].substring(0, at), URLDecoder.decode(each[n].substring(at + 1), "UTF-8"));
        }
        return found;
    }

    private static com.fasterxml.jackson.databind.ObjectMapper mapper() throws Exception {
        return (com.fasterxml.jackson.databind.ObjectMapper) hidden("RESTObjectMapper", "mapper", new Class[0]).invoke(null, new Object[0]);
    }

    /** What Iceberg's own tests see of its package. */
    private static Method hidden(String name, String method, Class[] parameters) throws Exception {
        Class owner = Class.forName("org.apache.iceberg.rest." + name, true, RESTCatalogAdapter.class.getClassLoader());
        Method found = owner.getDeclaredMethod(method, parameters);
        found.setAccessible(true);
        return found;
    }
}
