// Usage: node search.mjs http://localhost:9200 docs < questions.txt
import { createInterface } from "node:readline";
import { Client } from "@opensearch-project/opensearch";

const [node, index] = process.argv.slice(2);
const client = new Client({ node });

for await (const question of createInterface({ input: process.stdin })) {
  const { body } = await client.search({
    index,
    search_pipeline: `${index}-learned`, // the one word that is new
    body: { query: { match: { text: question } }, size: 10, _source: ["id"] },
  });
  console.log(body.hits.hits.map((hit) => hit._id).join(" "));
}
await client.close();
