# frozen_string_literal: true

require "io/console"
require_relative "../core/clock"
require_relative "colours"

module Heddle
  class CLI
    # heddle top: a table that is drawn again once a second, until a key ends it.
    class Top
      INTERVAL = 1.0 # seconds
      # As VT100 had it, for a terminal that does not know its size.
      SIZE = [24, 80].freeze
      # A screen of its own, without a cursor, where no line that is too long goes on in the next.
      ENTER = "\e[?1049h\e[?25l\e[?7l"
      LEAVE = "\e[?7h\e[?25h\e[?1049l"
      ORDERS = {
        "w" => ["longest wait", ->(task) { (task["state"] == "running") ? 0 : -task["for"].to_f }],
        "r" => ["most run", ->(task) { -task["ran"].to_f }],
        "d" => ["next deadline", ->(task) { task["left"] || Float::INFINITY }],
        "n" => ["number", ->(task) { task["task"] }]
      }.freeze
      KEYS = {"\e[A" => :up, "k" => :up, "\e[B" => :down, "j" => :down, "\e[5~" => :page_up, "\e[6~" => :page_down,
              "q" => :quit, "\u001a" => :suspend}.freeze
      SIGNALS = {"WINCH" => "\0", "TSTP" => "\u001a"}.freeze # and what key each is like
      SEQUENCE = /\e\[\d*[~A-Z]|./mn
      private_constant :SEQUENCE, :INTERVAL, :SIZE, :ENTER, :LEAVE, :ORDERS, :KEYS, :SIGNALS

      # @param out [IO]
      # @yieldreturn [Array<Insight::Snapshot>]
      def initialize(out, input = $stdin, &snapshots)
        @out = out
        @input = input
        @colours = Colours.new(out)
        @snapshots = snapshots
        @order = "w"
        @first = 0
      end

      # @return [Integer] exit status
      # @raise [Failure] if the process ends, or does not answer
      def run
        return print_once unless Colours.terminal?(@out) && @input.tty?

        on_signals { suspend while on_screen { watch } == :suspend }
        0
      end

      private

      def print_once
        @snapshots.call.each { |snapshot| @out.puts Insight::Text.new(snapshot).ps }
        0
      end

      # Ctrl-C and Ctrl-Z stay signals.
      def on_signals
        @signals, writer = IO.pipe
        previous = SIGNALS.to_h do |signal, key|
          [signal, trap(signal) { writer.write_nonblock(key, exception: false) }]
        end
        yield
      ensure
        previous&.each { |signal, handler| trap(signal, handler || "DEFAULT") }
        [@signals, writer].compact.each(&:close)
      end

      # Leaves the terminal as it was, however the block ends.
      def on_screen
        @input.raw(intr: true) do
          @out.write(ENTER)
          yield
        ensure
          @out.write(LEAVE)
        end
      end

      # Returns when the shell lets this go on.
      def suspend
        handler = trap("TSTP", "DEFAULT")
        Process.kill("TSTP", Process.pid)
      ensure
        trap("TSTP", handler)
      end

      # @return [Symbol] :quit or :suspend
      def watch
        loop do
          @shown = @snapshots.call
          draw
          limit = Clock.now + INTERVAL
          while (left = limit - Clock.now) > 0
            ends = read_keys(left).map { |key| press(key) }.compact.first
            return ends if ends

            draw
          end
        end
      end

      # @return [Array<String>] none after a change of the window's size, or when the time is over
      def read_keys(seconds)
        readable, = IO.select([@input, @signals], nil, nil, seconds)
        return [] unless readable
        return @signals.read_nonblock(64).chars if readable.include?(@signals)

        bytes = @input.read_nonblock(256, exception: false)
        return ["q"] unless bytes # the terminal is gone

        (bytes == :wait_readable) ? [] : bytes.scan(SEQUENCE)
      end

      def press(key)
        @order = key if ORDERS.key?(key)
        page = rows - 4
        case KEYS[key]
        when :quit, :suspend then return KEYS[key]
        when :up then @first -= 1
        when :down then @first += 1
        when :page_up then @first -= page
        when :page_down then @first += page
        end
        nil
      end

      def rows = size.first

      def size = @out.winsize.zip(SIZE).map { |known, usual| known.positive? ? known : usual }

      def draw
        height, width = size
        lines = @shown.flat_map { |snapshot| section(snapshot) }
        room = [height - 1, 1].max
        @first = @first.clamp(0, [lines.size - room, 0].max)
        shown = lines[@first, room].map { |line| @colours.paint(line[0, width]) }
        shown << "q: quit  w/r/d/n: by #{ORDERS.fetch(@order).first}  arrows: scroll"[0, width]
        @out.write("\e[H", shown.map { |line| "#{line}\e[K" }.join("\r\n"), "\e[J")
        @out.flush
      end

      def section(snapshot)
        text = Insight::Text.new(snapshot)
        order = ORDERS.fetch(@order).last
        [*text.head, *snapshot.loops.map { |row| text.loop_line(row) }, *text.table(snapshot.tasks.sort_by(&order))]
      end
    end
    private_constant :Top
  end
end
