import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Apache Iceberg's own servlet of its REST protocol, over its JDBC catalog: {@code http://127.0.0.1:<port>/<catalog>/v1/...}.
 * A catalog is there as soon as it is asked for, its tables lie below the warehouse in a folder of its name. The catalogs'
 * properties are the variables whose names begin with {@code CATALOG:}, so that no secret is on the command line; its name
 * takes the place of {@code %s} in its database's URI.
 *
 * <p>Each catalog needs a database of its own and one connection to it ({@code clients=1}). When the JDBC catalog starts it leaves
 * a query open, and SQLite has a connection with an open query read the state of that time for ever once another
 * connection writes: with two of them, tables are loaded as they were long ago, and commits fail for reasons unknown.
 */
public class IcebergRestServer extends HttpServlet {
  private static final String VARIABLE = "CATALOG:";
  private final Map<String, String> properties = new TreeMap<>();
  private final Map<String, HttpServlet> catalogs = new ConcurrentHashMap<>();

  public static void main(String[] arguments) throws Exception {
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.parseInt(arguments[0]));
    server.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new IcebergRestServer()), "/*");
    server.setHandler(context);
    server.start();
    server.join();
  }

  IcebergRestServer() {
    System.getenv().forEach((key, value) -> {
      if (key.startsWith(VARIABLE)) {
        properties.put(key.substring(VARIABLE.length()), value);
      }
    });
  }

  @Override
  protected void service(HttpServletRequest request, HttpServletResponse response)
      throws ServletException, IOException {
    String[] parts = request.getRequestURI().split("/", 3);
    if (parts.length < 3 || parts[1].isEmpty()) {
      response.sendError(HttpServletResponse.SC_NOT_FOUND);
      return;
    }
    HttpServletRequest inner = new HttpServletRequestWrapper(request) {
      @Override
      public String getRequestURI() {
        return "/" + parts[2];
      }
    };
    catalogs.computeIfAbsent(parts[1], this::catalog).service(inner, response);
  }

  private HttpServlet catalog(String name) {
    Map<String, String> own = new HashMap<>(properties);
    own.put("warehouse", properties.get("warehouse") + "/" + name);
    own.put("uri", properties.get("uri").replace("%s", name));
    return new RESTCatalogServlet(new RESTCatalogAdapter(CatalogUtil.buildIcebergCatalog(name, own, null)));
  }
}
