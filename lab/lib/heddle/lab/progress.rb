# frozen_string_literal: true

require "heddle/core/clock"

module Heddle
  module Lab
    # Shows how far a run is, how much time is left, and what it has found so far. On a terminal: the tables of the
    # rounds that are done, so that one can stop early, above a line with the cell that runs. In a log: a line whenever
    # a round has ended.
    class Progress
      # @param seconds [Numeric]
      # @return [String] for a reader who waits: "40 s", "3 min", "1 h 20 min"
      def self.duration(seconds)
        return "#{seconds.ceil} s" if seconds < 90

        minutes = (seconds / 60.0).ceil
        (minutes < 90) ? "#{minutes} min" : "#{minutes / 60} h #{minutes % 60} min"
      end

      # @param output [IO]
      # @param rounds [Integer]
      # @yieldparam record [Record]
      # @yieldreturn [String] the tables of the rounds that are done
      def initialize(output, rounds, &tables)
        @output = output
        @rounds = rounds
        @tables = tables
        @drawn = 0
        @done = @total = 0
      end

      # Says so before a run of minutes, and not only in its report.
      # @param models [Array<Model>] that cannot run
      # @param all [Integer] how many were asked for
      def missing(models, all)
        @output.puts("heddle: #{models.size} of #{all} models cannot run here (#{models.map(&:name).join(", ")}); " \
          "the report says why")
      end

      # @param total [Integer] cells that a run measures, beside those of other runs
      def begin(total)
        @total += total
        @began ||= Clock.now
      end

      # @param cell [Plan::Cell] that begins
      def step(cell)
        @done += 1
        return unless @output.tty?

        what = "#{@done}/#{@total} round #{cell.round}, #{cell.bench_case.name}, #{cell.model.name}#{left(@done - 1)}"
        @output.print("\r\e[K#{cut(what)}")
      end

      # @param record [Record]
      def round_ended(record)
        return draw(record) if @output.tty?

        round = record.rounds.last.round
        return if round == @rounds

        ruby = record.header["environment"]["ruby"][/\Aruby \S+/]
        cells = "#{@done} of #{@total} cells#{left(@done)}"
        @output.puts("heddle: round #{round} of #{@rounds} on #{ruby} is done, #{cells}")
      end

      # Erases what stands on the terminal.
      def clear
        return unless @output.tty?

        @output.print(@drawn.zero? ? "\r\e[K" : "\r\e[#{@drawn}A\e[J")
        @drawn = 0
      end

      private

      def draw(record)
        rows, = Terminal.size(@output)
        # What has colour is a table's, and fits.
        lines = @tables.call(record).lines(chomp: true).map { |line| line.include?("\e") ? line : cut(line) }
        lines = [*lines.first([rows - 3, 0].max), "…"] if lines.size > rows - 2
        clear
        @output.puts(lines)
        @drawn = lines.size
      end

      def cut(text) = text[0, Terminal.width(@output) - 1]

      def left(done)
        return "" if done.zero?

        ", #{Progress.duration((Clock.now - @began) / done * (@total - done))} left"
      end
    end
  end
end
