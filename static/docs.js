/** The API's documentation page: Swagger UI on /openapi.json. A classic script, as Swagger UI's bundle is. */
// @ts-ignore: the bundle has no types
window.SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  // Its own is a link within a button.
  plugins: [() => ({ components: { DeepLink: (/** @type {{text: string}} */ { text }) => text } })],
  defaultModelsExpandDepth: -1,
  docExpansion: "list",
  // By default it asks another server whether the description is valid.
  validatorUrl: null,
});
