// kafkajs as a read_committed consumer (its default): prints the first COUNT values of a topic.
'use strict'
const { Kafka, logLevel } = require('kafkajs')

const [address, topic, count] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [address], logLevel: logLevel.NOTHING })
const consumer = kafka.consumer({ groupId: `read-${process.pid}` })
let left = Number(count)

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message }) => {
      console.log(message.value.toString())
      left -= 1
      if (left === 0) setImmediate(() => process.exit(0))
    },
  })
}
main()
