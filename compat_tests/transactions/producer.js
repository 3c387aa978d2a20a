// kafkajs as a transactional producer that is told what to do in lines; see Producer.java.
'use strict'
const { Kafka, logLevel } = require('kafkajs')
const readline = require('readline')

const [address, transactionalId, timeout] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [address], logLevel: logLevel.NOTHING })
const producer = kafka.producer({
  transactionalId,
  transactionTimeout: Number(timeout),
  maxInFlightRequests: 1,
  idempotent: true,
  retry: { initialRetryTime: 50, retries: 5 },
})
let transaction

const run = {
  init: () => producer.connect(),
  begin: async () => { transaction = await producer.transaction() },
  send: (topic, partition, value) => transaction.send({ topic, messages: [{ partition: Number(partition), value }] }),
  many: (topic, partitions, count, name) => transaction.send({
    topic,
    messages: Array.from({ length: Number(count) }, (_, n) => (
      { partition: n % Number(partitions), value: `${name}-${n}`.padEnd(1000, '.') })),
  }),
  offset: (topic, partition, offset, consumerGroupId) =>
    transaction.sendOffsets({ consumerGroupId, topics: [{ topic, partitions: [{ partition: Number(partition), offset }] }] }),
  commit: () => transaction.commit(),
  abort: () => transaction.abort(),
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [word, ...rest] = line.split(' ')
    try {
      await run[word](...rest)
      console.log('ok')
    } catch (error) {
      console.log(error.type || error.name)
    }
  }
  await producer.disconnect()
}
main()
