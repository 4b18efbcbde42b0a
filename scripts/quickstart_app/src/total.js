const _ = require("lodash");

/** Sum of a basket in cents. */
function total(basket) {
  return _.sumBy(basket, (line) => line.price * line.count);
}

module.exports = { total };
