# frozen_string_literal: true

module Heddle
  module Lab
    class CLI
      # `heddle bench NAME --rubies`: the same bench on several Rubies, a round on each in turn, so that a drift of the
      # machine affects all. Each has a record of its own; the tables show them side by side.
      class RubyComparison
        # @param commands [Hash{String => BenchCommand}] ready to measure, by the labels of their Rubies
        # @param out [IO]
        # @param progress [Progress]
        # @param html [String, nil] the file of a page of all runs
        def initialize(commands, out, progress, html: nil)
          @commands = commands
          @out = out
          @progress = progress
          @html = html
        end

        # @return [Integer] the exit status: the worst of all
        # @raise [Error] of one Ruby, once what the others have measured is kept
        def run
          records = @commands.keys.zip(measure).to_h.compact
          statuses = records.map { |label, record| @commands[label].finish(record) }
          raise @error if @error

          @out.puts @commands.values.first.side_by_side(records)
          page(records).write(@html) if @html
          statuses.max
        end

        private

        def page(records)
          Report::Page.new(records.map { |label, record| @commands[label].recorded(record) })
        end

        def measure
          runs = @commands.each_value.map do |command|
            Fiber.new(blocking: true) { command.measure(@progress) { Fiber.yield } }
          end
          records = Array.new(runs.size)
          until records.all?
            runs.each_with_index do |run, index|
              records[index] ||= run.resume
              return interrupt_others(runs, records) if records[index]&.interrupted?
            end
          end
          records
        rescue Interrupt # before the first cell of one
          interrupt_others(runs, records).tap { |some| raise if some.none? }
        rescue Error => error
          @error = error
          interrupt_others(runs, records)
        end

        def interrupt_others(runs, records)
          runs.each_with_index.map do |run, index|
            records[index] || run.raise(Interrupt)
          rescue Interrupt, FiberError
            nil # it has not measured a cell, or has not begun
          end
        end
      end
    end
  end
end
