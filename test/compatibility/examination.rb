# frozen_string_literal: true

require "json"
require_relative "peers"
require_relative "between"

module Compatibility
  # Asks a library all questions, in this process. Each question begins with clients that have had an answer.
  class Examination
    include Heddle::Clock

    # Ten tasks take the time of one; a deadline ends a request in a task, and in a plain thread; a cancel ends it.
    QUESTIONS = %i[at_once tasks threads cancel].freeze
    # How late the peer answers, in seconds.
    DELAY = 0.2
    TASKS = 10
    DEADLINE = 1
    # Seconds by which a deadline may be missed.
    TOLERANCE = 0.05
    # A case that is late is measured so often: the machine may have been busy.
    MEASURED = 3
    # Seconds after which a request that nothing ends is ended by its peer.
    LIMIT = 3.5
    # Seconds for which a request is under way before it is cancelled.
    UNDER_WAY = 0.3
    # Seconds for the answer of a request that is not disturbed.
    PATIENCE = 5

    # @param library [Library]
    # @yield [key, value] what was found, as it is found: a library may end or hang this process
    def initialize(library, &found)
      @library = library
      @found = found
      @number = 100
      @afterwards = {}
    end

    def run
      @peer = Peers.start(*@library.wanted_peer)
      require "heddle"
      prefer_its_own_files
      @library.loads
      @found.call("version", version)
      @library.questions.each { |question| @found.call(question, answer_to(question)) }
      @found.call("afterwards", @afterwards.transform_values { |states| states.uniq.sort })
    ensure
      @peer&.stop
    end

    private

    # Two gems may have files of one name.
    def prefer_its_own_files
      $LOAD_PATH.unshift(*Gem.loaded_specs[@library.gem]&.full_require_paths)
    end

    def version = Gem.loaded_specs[@library.gem]&.version&.to_s || "Ruby's own"

    def answer_to(question)
      send(question)
    rescue => error
      {"error" => "#{error.class}: #{error.message.lines.first.to_s.strip[0, 150]}"}
    end

    # @return [Hash] seconds that one task takes, and ten
    def at_once
      measured = nil
      MEASURED.times { break unless slow?(measured = one_and_ten) }
      measured
    end

    # By as much as a busy machine can be the reason of.
    def slow?(measured) = measured["ten"].between?(2 * measured["one"], TASKS / 2 * measured["one"])

    def one_and_ten
      between do |line|
        Heddle.run do
          clients = Array.new(TASKS) { new_client(line) }
          line.late(DELAY)
          one = seconds { ask(clients.first) }
          ten = seconds { clients.map { |client| Heddle.spawn { ask(client) } }.each(&:value) }
          clients.each { |client| @library.end_client(client) }
          {"one" => one.round(3), "ten" => ten.round(3)}
        end
      end
    end

    def tasks = deadlines(:tasks) { |&block| Heddle.run(&block) }

    def threads
      deadlines(:threads) { |&block| Thread.new(&block).tap { |thread| thread.report_on_exception = false }.value }
    end

    def deadlines(question, &mode)
      between(&:faults).to_h do |fault|
        measured = nil
        MEASURED.times do
          measured = between { |line| mode.call { interrupted(line, fault, question) } }
          break unless late?(measured)
        end
        [fault.to_s, measured]
      end
    end

    # Not by a peer that ended the request: by as much as a busy machine can be the reason of.
    def late?(measured) = Float === measured && measured > DEADLINE + TOLERANCE && measured < 2 * DEADLINE

    # @return [Float, String] after how many seconds the deadline ended the request; or what happened instead
    def interrupted(line, fault, question)
      client = new_client(line)
      line.break_off(fault) { ask(client) }
      took = line.for_seconds(LIMIT) { expired { ask(client) } }
      keep_state(question, client, line)
      took
    end

    def keep_state(question, client, line)
      (@afterwards[question] ||= []) << state_of(client, line) unless line.cut?
    end

    def expired
      began = now
      Heddle.deadline(DEADLINE) { yield }
      "an answer after #{(now - began).round(2)} s"
    rescue Heddle::DeadlineExceeded
      (now - began).round(3)
    rescue => error
      "#{error.class} after #{(now - began).round(2)} s"
    end

    # What the client does with the next request, now that its peer answers again.
    def state_of(client, line)
      line.pass
      connections = line.connections
      errors = 0
      begin
        number = next_number
        answer = Heddle.deadline(PATIENCE) { @library.answer(client, number) }
        return "wrong" if answer != number
      rescue
        return "closed" if (errors += 1) > 1

        retry
      end
      @library.end_client(client)
      [("error" if errors > 0), (line.connections > connections) ? "new" : "same"].compact.join(", ")
    end

    def cancel
      between do |line|
        Heddle.run do
          client = new_client(line)
          line.break_off(:silent) { ask(client) }
          took = line.for_seconds(LIMIT) { cancelled { ask(client) } }
          # Also for a library whose own fiber still waits for the answer: the run waits for that fiber.
          keep_state(:cancel, client, line)
          line.cut? ? "not before its peer ended" : took
        end
      end
    end

    # @return [Float, String] seconds that a cancel took; or what happened instead
    def cancelled(&request)
      task = Heddle.spawn(&request)
      sleep UNDER_WAY
      began = now
      task.cancel
      task.value
      "an answer"
    rescue Heddle::TaskCancelled
      (now - began).round(3)
    rescue => error
      "#{error.class} before the cancel"
    end

    def between
      line = Between.new(@peer)
      yield line
    ensure
      line&.stop
    end

    # A client that has had an answer.
    def new_client(line)
      client = @library.new_client(line.address)
      ask(client)
      client
    end

    def ask(client)
      number = next_number
      answer = @library.answer(client, number)
      answer == number or raise "the answer to request #{number} was #{answer.inspect}"
    end

    def next_number = @number += 1

    def seconds
      began = now
      yield
      now - began
    end
  end
end
