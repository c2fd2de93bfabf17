// Usage: mvn -q compile exec:java -Dexec.args="http://localhost:9200 docs" < questions.txt
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.hc.core5.http.HttpHost;
import org.opensearch.client.opensearch.OpenSearchClient;
import org.opensearch.client.opensearch._types.FieldValue;
import org.opensearch.client.opensearch.core.search.Hit;
import org.opensearch.client.transport.httpclient5.ApacheHttpClient5TransportBuilder;

public class Search {
  public static void main(String[] arguments) throws Exception {
    String index = arguments[1];
    try (var transport = ApacheHttpClient5TransportBuilder.builder(HttpHost.create(arguments[0])).build();
        var questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      var client = new OpenSearchClient(transport);
      for (String question; (question = questions.readLine()) != null; ) {
        var words = FieldValue.of(question);
        var answer =
            client.search(
                search ->
                    search
                        .index(index)
                        .searchPipeline(index + "-learned") // the one line that is new
                        .query(query -> query.match(match -> match.field("text").query(words)))
                        .size(10)
                        .source(source -> source.filter(filter -> filter.includes("id"))),
                Map.class);
        System.out.println(answer.hits().hits().stream().map(Hit::id).collect(Collectors.joining(" ")));
      }
    }
  }
}
