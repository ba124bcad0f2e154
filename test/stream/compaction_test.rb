# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/certificates"

# A stream in the old generation, whose references change: a minor collection must see the new objects, and a
# compaction moves them.
class StreamCompactionTest < Minitest::Test
  include LoopHelpers

  def test_references_that_change_in_an_old_stream
    out = assert_child(<<~'RUBY')
      move = lambda do
        GC.start(full_mark: false)
        if RUBY_VERSION < "3.2"
          GC.verify_compaction_references(double_heap: true, toward: :empty)
        else
          GC.verify_compaction_references(expand_heap: true, toward: :empty)
        end
      rescue ArgumentError, NotImplementedError, NoMethodError
        GC.compact if GC.respond_to?(:compact)
      end
      near, far = UNIXSocket.pair
      stream = Heddle::Stream.new(near)
      4.times { GC.start }
      seen = Heddle.run do
        tasks = Array.new(20) do |index|
          Heddle.spawn do
            stream.exchange do
              stream.write("#{index} ") # begins a message: its author is this fiber
              Array.new(100) { +"filler" } && move.call if index % 5 == 0
              stream.write("go\n")
              stream.flush
              line = far.gets
              far.write(line)
              stream.gets
            end
          end.value
        end
        [tasks, Fiber.new { stream.exchange(0) { move.call && stream.owed } }.resume]
      end
      move.call
      stream.close
      p seen[0] == Array.new(20) { |index| "#{index} go\n" }, seen[1], stream.closed?
    RUBY
    assert_equal "true\n0\ntrue\n", out
  end

  # The String that TLS reads into is made by the first read.
  def test_an_object_that_only_an_old_stream_refers_to
    near, far = UNIXSocket.pair
    peer = Thread.new do
      Thread.current.report_on_exception = false
      tls = OpenSSL::SSL::SSLSocket.new(far, Certificates.context)
      tls.accept
      while (line = tls.gets)
        tls.write(line * 50)
      end
    end
    stream = Heddle::Stream.new(near)
    stream.start_tls("localhost", {ca_file: Certificates.authority_file})
    4.times { GC.start }
    answers = Array.new(20) do |index|
      stream.write("#{index}\n")
      stream.flush
      Array.new(50) { stream.gets }.tap { GC.start(full_mark: false) && Array.new(5_000) { +"filler" } }
    end
    assert_equal Array.new(20) { |index| ["#{index}\n"] * 50 }, answers
  ensure
    stream&.close
    peer&.kill
    far&.close
  end
end
