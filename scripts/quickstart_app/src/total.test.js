const { total } = require("./total");

test("adds up price times count", () => {
  expect(total([{ price: 250, count: 2 }, { price: 99, count: 1 }])).toBe(599);
});
