# frozen_string_literal: true

require "test_helper"
require "support/interrupt_at_moment"
require "support/stream_helpers"
require "support/postgresql_exchanges"

# Each exchange is interrupted at every byte of the server's answers: by Thread#raise, by a cancel of its task and by
# the end of its thread (for deadlines see postgresql_poison_test.rb). The exchange ends, the pool has its place back,
# and the next user gets the right answer, from another connection. This server stops no query; for one that does see
# postgresql_interrupted_test.rb. With HEDDLE_STRESS at all bytes, else at every third, other ones in each run.
class PostgreSQLInterruptsTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLExchanges
  include InterruptAtMoment

  hard_deadline 60

  DB = Heddle::DB
  STRIDE = ENV.key?("HEDDLE_STRESS") ? 1 : 3
  Interrupted = Class.new(StandardError)

  # How the user of a pool is interrupted once the server has said all that it will say. Each returns how the user
  # ended.
  INTERRUPTS = {
    raise: lambda do |body, sent|
      thread = quiet_thread(&body)
      asleep(thread, sent)
      thread.raise(Interrupted, "now")
      outcome_of(thread)
    end,
    kill: lambda do |body, sent|
      thread = quiet_thread(&body)
      asleep(thread, sent)
      thread.kill
      outcome_of(thread)
    end,
    cancel: lambda do |body, sent|
      Heddle.run do
        task = Heddle.spawn(&body)
        sent.pop
        3.times { sleep 0 } # the task has read all that has arrived
        task.cancel
        task.value
      rescue Heddle::TaskCancelled => error
        error
      end
    end
  }.freeze

  class << self
    def quiet_thread(&block) = Thread.new(&block).tap { |thread| thread.report_on_exception = false }

    def asleep(thread, sent)
      sent.pop
      Thread.pass until thread.status == "sleep" || !thread.alive?
    end

    def outcome_of(thread)
      raise "the interrupted thread hangs: #{thread.backtrace&.first(5)}" unless thread.join(Slowness.stretch(30))

      thread.value
    rescue Interrupted => error
      error
    end
  end

  # The first connection stops after so many bytes. If the client uses it again, the rest comes first, as from a server
  # that is late. The second connection has all answers.
  def play(answers, offset, sent)
    connections = 0
    lambda do |peer|
      peer.startup
      if (connections += 1) > 1
        answer_partly(peer, answers, 1 << 40)
      else
        answer_partly(peer, answers, offset)
        sent << true
        reset(peer) { peer.raw((LOGIN + answers.join)[offset..]) }
        answers.each do |bytes|
          end_of_request(peer)
          peer.raw(bytes)
        end
      end
      loop { reset(peer) }
    end
  end

  # Answers what a pool sends at the end of a use.
  def reset(peer)
    nil until peer.read.first == "Q"
    yield if block_given?
    peer.raw(M["C", "DISCARD ALL\0"] + S.ready)
  end

  def interrupt(kind, offset, way)
    operation, expected, answers = KINDS.fetch(kind)
    sent = Thread::Queue.new
    server = S.new(&play(answers, offset, sent))
    pool = DB::Pool.new(server.url, size: 1, timeout: 20, checkout_timeout: 10, kill_queries: false)
    what = "#{kind}: #{way} at #{offset} of #{total(answers)}"
    outcome = INTERRUPTS.fetch(way).call(-> { pool.with { |db| operation.call(db) } }, sent)
    assert_kind_of((way == :kill) ? NilClass : Exception, outcome, what)
    assert_equal 0, pool.stats[:connections] - pool.stats[:free], "#{what}: a place is lost"
    assert_equal expected, pool.with { |db| operation.call(db) }, what
    assert_equal 2, server.accepted, "#{what}: the connection was used again" unless between_messages?(kind, offset)
    assert_equal 1, server.accepted, what if way == :cancel && waits?(kind, offset)
    assert_empty server.errors, what
  ensure
    pool&.close
    server&.close
  end

  NOTIFIED = M["A", [9].pack("N") + "ch\0pay\0"].bytesize
  NOTICED = M["N", "SNOTICE\0VNOTICE\0C00000\0Mx\0\0"].bytesize

  # A wait for a notification, in which nothing is owed: an interrupt that comes before the first byte of a message does
  # no harm, and the connection goes on.
  def between_messages?(kind, offset) = kind == :notification && offset >= total(KINDS[kind].last) - NOTIFIED - NOTICED

  def waits?(kind, offset) = kind == :notification && offset == total(KINDS[kind].last) - NOTIFIED

  KINDS.each_key do |kind|
    INTERRUPTS.each_key do |way|
      define_method(:"test_#{way}_in_#{kind}") do
        (rand(STRIDE)...total(KINDS[kind].last)).step(STRIDE) { |offset| interrupt(kind, offset, way) }
      end
    end
  end

  # Nobody else closes it then but the GC.
  def test_exceptions_while_a_connection_is_closed
    play = ->(peer) { peer.startup && peer.raw(LOGIN) && loop { peer.read } }
    S.play(play) do |server|
      (1..).each do |moment|
        db = DB.connect(server.url, timeout: 20)
        reached = raised_at([moment, 1]) { |armed| [armed.call, db.close] }
        assert_predicate db, :closed?, reached.inspect
        break if reached.empty?
      end
    end
  end
end
