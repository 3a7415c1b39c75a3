/** The API's documentation page: Swagger UI on the server's own description of itself. A classic script, since
 * Swagger UI's bundle is one: it is there before this runs. */
// @ts-ignore: the bundle has no types
window.SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: -1,
  docExpansion: "list",
  // Left alone, it asks a server elsewhere whether the description is valid.
  validatorUrl: null,
});
