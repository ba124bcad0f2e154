# frozen_string_literal: true

require "test_helper"
require "socket"
require "unmodified/unmodified_test_case"

# Objects and settings that belong to a thread in a library, and so to all of its tasks, as doc/limits.md says.
class UnmodifiedSharedStateTest < UnmodifiedTestCase
  def test_one_persistent_excon_object_mixes_up_answers
    require "excon"
    echo do |url|
      shared = Excon.new(url, persistent: true)
      paths = Array.new(6) { |i| "/#{i}" }
      Heddle.run do
        shared.get(path: "/")
        refute_equal paths, asked(paths) { |path| shared.get(path: path).body }
        assert_equal paths, asked(paths) { |path| Excon.new(url).get(path: path).body }
      end
    end
  end

  def test_i18n_locale_belongs_to_the_thread_on_ruby_3_1
    require "i18n"
    before = [I18n.enforce_available_locales, I18n.locale]
    I18n.enforce_available_locales = false
    I18n.locale = :en
    seen = Heddle.run do
      set, done = Array.new(2) { Thread::Queue.new }
      Heddle.spawn do
        I18n.locale = :de
        set.push(true)
        done.pop
      end
      set.pop
      Heddle.spawn { I18n.locale }.value.tap { done.push(true) }
    end
    assert_equal (RUBY_VERSION < "3.2") ? :de : :en, seen
  ensure
    I18n.locale = before.last if before
    I18n.enforce_available_locales = before.first if before
  end

  def test_a_fiber_kept_past_its_task_belongs_to_another_task
    Heddle.run do
      ended = Heddle.spawn { Fiber.current }
      kept = ended.value
      heir = wait_until(what: "a task on the same fiber") { heir_on(kept) }
      ended.cancel
      assert_nil heir.wait(0.01)
      assert_equal :waiting, heir.status
      kept.raise("meant for another")
      assert_equal "meant for another", assert_raises(RuntimeError) { heir.value }.message
    end
  end

  private

  # A task on that fiber that sleeps, or nil.
  def heir_on(fiber)
    same = false
    task = Heddle.spawn { sleep if (same = Fiber.current.equal?(fiber)) }
    task if same
  end

  def asked(paths)
    tasks = paths.map do |path|
      Heddle.spawn do
        yield path
      rescue Excon::Error => e
        e.class.name
      end
    end
    tasks.map(&:value)
  end

  # A server whose answers are the requested paths.
  def echo
    server = TCPServer.new("127.0.0.1", 0)
    thread = Thread.new do
      loop { Thread.new(server.accept) { |socket| answer(socket) } }
    rescue IOError
      nil
    end
    yield "http://127.0.0.1:#{server.local_address.ip_port}"
  ensure
    server&.close
    thread&.join
  end

  def answer(socket)
    while (line = socket.gets)
      nil until socket.gets == "\r\n"
      sleep 0.05 # as long as an answer takes
      path = line.split[1]
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: #{path.bytesize}\r\n\r\n#{path}")
    end
  rescue SystemCallError, IOError
    nil
  ensure
    socket.close
  end
end
