# frozen_string_literal: true

require "heddle"
require "puma/const"

# Requests that tests hold, and load.
module PumaLoad
  CLIENTS = 16

  private

  def file(puma, name) = File.join(puma.folder, name)

  # @return [Array<Thread>] with requests that wait for {#let_go}
  def hold(puma, count, began: count)
    held = Array.new(count) { |id| in_background { puma.get("/held?id=#{id}").body } }
    wait_until(what: "#{began} requests") { Dir.children(puma.folder).grep(/\Abegan-/).size >= began }
    held
  end

  # Puma 6 leaves requests for which it has no room to the kernel.
  def wait_for_backlog(puma, count)
    return if Puma::Const::VERSION < "7"

    wait_until(what: "the backlog") { puma.stats["backlog"] == count }
  end

  def let_go(puma) = File.write(file(puma, "go"), "")

  def refused?(puma)
    puma.connect { false }
  rescue Errno::ECONNREFUSED
    true
  end

  # Has clients send requests, a connection each, while the block runs; each must be answered, and with its own answer.
  # Yields the numbers of those that were. At its end Puma closes connections on which no request has arrived yet: then
  # the application must not have seen the request, and the client sends it again.
  def under_load(puma)
    answers = []
    cut_off = []
    stopped = false
    clients = Array.new(CLIENTS) do |client|
      in_background do
        id = client
        until stopped
          begin
            assert_match(/\A#{id} after nil /, puma.get("/waits?id=#{id}&count=2&seconds=0.01&mark=begun").body)
            answers << id
          rescue EOFError, Errno::ECONNRESET
            cut_off << id
          end
          id += CLIENTS
        end
      end
    end
    yield answers
  ensure
    stopped = true
    clients.each(&:value)
    begun = File.readlines(file(puma, "begun"), chomp: true).map(&:to_i)
    assert_equal answers.sort, begun.sort, "answered, begun (#{cut_off.size} were cut off)"
  end
end
