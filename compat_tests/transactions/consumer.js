// kafkajs as a read_committed consumer (its default): prints the first COUNT values of a topic.
'use strict'
const { Kafka, logLevel } = require('kafkajs')

const [address, topic, count] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [address], logLevel: logLevel.NOTHING })
const consumer = kafka.consumer({ groupId: `read-${process.pid}` })
const values = []

async function main() {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message }) => {
      values.push(message.value.toString())
      if (values.length === Number(count)) process.stdout.write(values.join('\n') + '\n', () => process.exit(0))
    },
  })
}
main()
