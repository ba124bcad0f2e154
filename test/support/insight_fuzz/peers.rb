# frozen_string_literal: true

require "json"
require "socket"

module InsightFuzz
  # Asks the processes whose sockets are in a folder, some of the time like a client that misbehaves.
  class Peers
    NONSENSE = ["why -5\n", "why 99999999999999999999\n", "\n", "why\n", "x y z\n", "ps wait=\n", "\0\n",
      "\xff\xfe\n"].freeze
    LONGEST = 100 # seconds that anything may have lasted
    private_constant :NONSENSE, :LONGEST

    # @return [Array<String>]
    attr_reader :faults
    # @return [Integer] how many were complete
    attr_reader :answers

    def initialize(folder, seed)
      @folder = folder
      @random = Random.new(seed)
      @faults = []
      @answers = 0
      @thread = Thread.new { ask_some until @stopped }
      @command = Thread.new { run_command }
    end

    def stop
      @stopped = true
      [@thread, @command].each(&:join)
    end

    private

    def ask_some
      Dir.glob("#{@folder}/heddle/*.sock").sample(2, random: @random).each do |path|
        socket = UNIXSocket.new(path)
        ask(socket)
      rescue SystemCallError
        nil # it has ended
      ensure
        socket&.close
      end
      sleep(@random.rand * 0.05)
    end

    def ask(socket)
      case @random.rand(8)
      when 0 then socket.write(@random.bytes(@random.rand(1..200)))
      when 1 then socket.write("ps").then { sleep(@random.rand * 0.5) }
      when 2 then socket.write("ps\n") # and goes
      when 3 then check(socket, "ps backtraces wait=#{@random.rand(-5..3000)}\n")
      when 4 then check(socket, NONSENSE.sample(random: @random))
      when 5 then check(socket, "why #{@random.rand(300)}\n") { socket.close_write }
      when 6 then check(socket, "why #{@random.rand(300)}\n")
      else check(socket, "ps\n")
      end
    end

    def check(socket, question)
      socket.write(question)
      yield if block_given?
      lines = socket.read.lines
      lines.pop unless lines.last&.end_with?("\n") # its process has ended
      rows = lines.map { |line| JSON.parse(line) }
      @answers += 1 if rows.last&.key?("end")
      wrong(rows) { |what| fault("#{question.inspect} is answered with #{what}") }
    rescue JSON::ParserError => error
      fault("#{question.inspect} is answered with what is no JSON: #{error.message[0, 300]}")
    end

    def wrong(rows)
      tasks, others = rows.partition { |row| row["task"] }
      loops = others.filter_map { |row| row["loop"] }
      yield "a loop twice: #{loops}" if loops.uniq!
      yield "a task twice" if tasks.uniq { |row| row["task"] }.size < tasks.size
      tasks.each do |row|
        yield "a task older than its parent: #{row}" if row["parent"] >= row["task"]
        yield "a task that takes too long: #{row}" if row.values_at("for", "ran", "was_ready").max > LONGEST
      end
      rows.each do |row|
        negative = row.except("descriptor").find { |_, value| value.is_a?(Numeric) && value < 0 }
        yield "#{negative} in #{row}" if negative
      end
    end

    # One of the commands, once a process listens.
    def run_command
      sleep(0.01) until @stopped || (path = Dir.glob("#{@folder}/heddle/*.sock").first)
      return unless path

      words = [["ps", "--json"], ["tree"], ["why", @random.rand(1..50).to_s]].sample(random: @random)
      output = heddle(words.first, File.basename(path)[/\d+/], *words.drop(1))
      fault("heddle #{words.first} printed #{output[0, 500]}") if output.match?(/\.rb:\d+:in .*Error/)
    end

    def heddle(*words)
      root = File.expand_path("../../..", __dir__)
      IO.popen({"XDG_RUNTIME_DIR" => @folder}, [RbConfig.ruby, "-I#{root}/lib", "#{root}/exe/heddle", *words],
        err: %i[child out], &:read)
    end

    def fault(what) = @faults << what
  end
end
