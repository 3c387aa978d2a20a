BLOCK

startBroker().then(({ brokers, stop }) => {
  console.log(brokers[0]);
  stop();
});
