// kafkajs for the scenarios: requests and answers are lines of JSON on standard input and output.
// {id, op, ...} is answered by {id, result} or {id, error}; what happens to members comes as {member, event, ...}.
// Binary values travel as latin-1 strings.
'use strict'
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const { ZstdCodec } = require('zstd-codec')
const lz4 = require('lz4-napi')
const snappy = require('snappyjs')
const readline = require('readline')

const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0])

// Java writes snappy in blocks behind a header; everybody else reads both forms.
function unsnappy(buffer) {
  if (buffer.compare(XERIAL, 0, 8, 0, 8) !== 0) return snappy.uncompress(buffer)
  const parts = []
  for (let at = 16; at < buffer.length; ) {
    const size = buffer.readUInt32BE(at)
    parts.push(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size)))
    at += 4 + size
  }
  return Buffer.concat(parts)
}

let zstd
const zstdReady = new Promise(resolve =>
  ZstdCodec.run(made => {
    zstd = new made.Streaming() // frames need not tell their size
    resolve()
  })
)
// zstd-codec looks at the whole of the memory behind a view, so it gets a copy.
const own = buffer => Uint8Array.from(buffer)
CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async encoder => snappy.compress(encoder.buffer),
  decompress: async buffer => unsnappy(buffer),
})
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrame(encoder.buffer),
  decompress: async buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => (await zstdReady, Buffer.from(zstd.compress(own(encoder.buffer)))),
  decompress: async buffer => (await zstdReady, Buffer.from(zstd.decompress(own(buffer)))),
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const [address, sessionTimeout, heartbeatInterval] = process.argv.slice(2)
const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers: [address],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 15 },
})

const tell = what => process.stdout.write(JSON.stringify(what) + '\n')
const text = bytes => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('latin1'))
const bytes = string => (string === null ? null : Buffer.from(string, 'latin1'))

function shown({ partition, message }) {
  const headers = []
  for (const [name, values] of Object.entries(message.headers || {})) {
    for (const value of Array.isArray(values) ? values : [values]) headers.push([name, text(value)])
  }
  return {
    value: text(message.value), key: text(message.key), headers, partition,
    timestamp: Number(message.timestamp), offset: Number(message.offset),
  }
}

function groupConsumer(groupId, more = {}) {
  return kafka.consumer({
    groupId,
    sessionTimeout: Number(sessionTimeout),
    heartbeatInterval: Number(heartbeatInterval),
    maxWaitTimeInMs: 200,
    ...more,
  })
}

async function withAdmin(work) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

// Apache Kafka says that a topic exists before each of its partitions has a leader; kafkajs does not wait for that here.
async function led(ask) {
  for (const end = Date.now() + 20000; ; await new Promise(again => setTimeout(again, 100))) {
    try {
      return await ask()
    } catch (error) {
      if (error.type !== 'NOT_LEADER_FOR_PARTITION' || Date.now() > end) throw error
    }
  }
}

// Run a consumer until it has `count` records; `settle` sees it before its end.
async function take(consumer, topic, { count, fromBeginning = true, begin, settle }) {
  const records = []
  await consumer.connect()
  try {
    await consumer.subscribe({ topic, fromBeginning })
    await new Promise((resolve, reject) => {
      // The consumer starts itself again after errors that pass, such as a coordinator that is loading.
      consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
      consumer
        .run({
          autoCommit: false,
          eachMessage: async got => {
            if (begin && !begin.done) return // what was fetched before the seek
            if (records.length < count) records.push(shown(got))
            if (records.length >= count) resolve()
          },
        })
        .then(async () => {
          if (begin) {
            begin.done = true
            for (const place of begin.places) consumer.seek({ topic, ...place })
          }
        }, reject)
    })
    if (settle) await settle(records)
    return records
  } finally {
    await consumer.disconnect()
  }
}

const members = new Map()
let numbers = 0

const operations = {
  async produce({ topic, records, codec, acks, idempotent }) {
    const producer = kafka.producer({
      idempotent, maxInFlightRequests: idempotent ? 1 : undefined, allowAutoTopicCreation: true,
      retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 5 },
    })
    await producer.connect()
    try {
      await producer.send({
        topic,
        acks,
        compression: CODECS[codec],
        messages: records.map(({ value, key, headers, partition, timestamp }) => {
          const named = {}
          for (const [name, content] of headers) (named[name] = named[name] || []).push(bytes(content))
          for (const name of Object.keys(named)) if (named[name].length === 1) named[name] = named[name][0]
          return {
            value: bytes(value), key: bytes(key), headers: named,
            partition: partition === null ? undefined : partition,
            timestamp: timestamp === null ? undefined : String(timestamp),
          }
        }),
      })
    } finally {
      await producer.disconnect()
    }
  },

  async consume({ topic, count, kind, number, partition }) {
    const begin = { places: [], done: false }
    await withAdmin(async admin => {
      const offsets = await led(() =>
        kind === 'timestamp' ? admin.fetchTopicOffsetsByTimestamp(topic, number) : admin.fetchTopicOffsets(topic)
      )
      for (const told of offsets) {
        if (partition === null || told.partition === partition) {
          const offset = kind === 'timestamp' ? told.offset : kind === 'offset' ? String(number) : told.low
          begin.places.push({ partition: told.partition, offset })
        } else {
          begin.places.push({ partition: told.partition, offset: told.high || told.offset }) // nothing there
        }
      }
    })
    return take(groupConsumer(`consume-${process.pid}-${numbers++}`), topic, { count, begin })
  },

  async consumeInGroup({ group, topic, count }) {
    const consumer = groupConsumer(group)
    const settle = async records => {
      const ends = new Map(records.map(record => [record.partition, record.offset + 1]))
      await consumer.commitOffsets([...ends].map(([partition, end]) => ({ topic, partition, offset: String(end) })))
    }
    return take(consumer, topic, { count, settle })
  },

  async join({ member, group, topic, latest }) {
    const consumer = groupConsumer(group, { rebalanceTimeout: 10000 })
    const say = event => tell({ member, ...event })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
      say({ event: 'assigned', partitions: payload.memberAssignment[topic] || [] })
    )
    consumer.on(consumer.events.REBALANCING, () => say({ event: 'revoked' }))
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) say({ event: 'failed', error: String(payload.error) })
    })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: !latest })
    members.set(member, consumer)
    await consumer.run({ eachMessage: async got => say({ event: 'record', record: shown(got) }) })
  },

  async leave({ member }) {
    await members.get(member).disconnect()
    members.delete(member)
  },

  createTopic: ({ topic, partitions, configs }) =>
    withAdmin(async admin => {
      const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
      const made = await admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries }] })
      if (!made) throw Object.assign(new Error('exists'), { type: 'TOPIC_ALREADY_EXISTS' })
    }),

  deleteTopic: ({ topic }) => withAdmin(admin => admin.deleteTopics({ topics: [topic] })),

  topics: () =>
    withAdmin(async admin => {
      const { topics } = await admin.fetchTopicMetadata()
      return Object.fromEntries(topics.map(told => [told.name, told.partitions.length]))
    }),

  topicConfig: ({ topic }) =>
    withAdmin(async admin => {
      const told = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: topic }] })
      return Object.fromEntries(told.resources[0].configEntries.map(e => [e.configName, e.configValue]))
    }),

  setTopicConfig: ({ topic, key, value }) =>
    withAdmin(admin =>
      admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries: [{ name: key, value }] }] })
    ),

  groups: () => withAdmin(async admin => (await admin.listGroups()).groups.map(told => told.groupId)),

  committed: ({ group, topic }) =>
    withAdmin(async admin => {
      const told = await admin.fetchOffsets({ groupId: group, topics: [topic] })
      return Object.fromEntries(told[0].partitions.map(p => [p.partition, Number(p.offset)]))
    }),
}

readline.createInterface({ input: process.stdin }).on('line', async line => {
  const { id, op, ...options } = JSON.parse(line)
  try {
    tell({ id, result: (await operations[op](options)) || null })
  } catch (error) {
    const cause = error.errors ? error.errors[0] : error
    tell({ id, error: cause.type || (cause.cause && cause.cause.type) || String(cause) })
  }
}).on('close', () => process.exit(0))
