module.exports = [{ files: ["src/**/*.js"], rules: { "no-unused-vars": "off", semi: "error" } }];
