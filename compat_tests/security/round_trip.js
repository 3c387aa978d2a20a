// kafkajs writes one value to a topic and reads it again, with the security that its argument says.
'use strict'
const { Kafka, logLevel } = require('kafkajs')

const told = JSON.parse(process.argv[2])
const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers: [told.address],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 5 },
  ssl: told.ca ? { ca: [told.ca] } : false,
  sasl: !told.mechanism
    ? undefined
    : told.token
      ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: told.token }) }
      : { mechanism: told.mechanism, username: told.user, password: told.password },
})

async function run() {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: told.topic, messages: [{ value: told.value }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: told.topic + '-kafkajs' })
  await consumer.connect()
  await consumer.subscribe({ topics: [told.topic], fromBeginning: true })
  const value = await new Promise(resolve => consumer.run({ eachMessage: async ({ message }) => resolve(message.value) }))
  await consumer.disconnect()
  process.stdout.write(value)
}

run().then(
  () => process.exit(0),
  error => {
    process.stderr.write(String(error))
    process.exit(1)
  }
)
