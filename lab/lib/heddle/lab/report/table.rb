# frozen_string_literal: true

module Heddle
  module Lab
    # Ways to show a summary.
    module Report
      # The text of a cell, and how it compares.
      # @!attribute text [String]
      # @!attribute style [Symbol, nil] :noise, :ahead, :behind or :error
      Entry = Struct.new(:text, :style) do
        def to_s = text
      end

      # A table, before it is formatted as text or Markdown.
      # @!attribute title [String]
      # @!attribute columns [Array<String>] the first is over the rows' names
      # @!attribute rows [Array<Array<String, Entry>>]
      # @!attribute notes [Array<String>] printed beneath
      # @!attribute prose [Boolean, nil] cells hold words, not figures: everything is set to the left
      # @!attribute metric [Metric, nil] whose values these are
      Table = Struct.new(:title, :columns, :rows, :notes, :prose, :metric, keyword_init: true) do
        # @param tables [Hash{String => Array<Table>}] of several runs of a bench, by what tells the runs apart
        # @return [Array<Table>] each figure of a table beside those of the other runs; words one after another; what is
        #   the same in each run once
        def self.side_by_side(tables)
          tables.values.flatten.map(&:title).uniq.flat_map do |title|
            found = tables.transform_values { |some| some.find { |table| table.title == title } }.compact
            next found.values.first if found.values.uniq.one? && found.size > 1
            next merged(title, found) unless found.values.first.prose

            found.map { |run, table| new(**table.to_h, title: "#{title}, #{run}") }
          end
        end

        def self.merged(title, tables)
          columns = tables.values.flat_map { |table| table.columns.drop(1) }.uniq
          names = tables.values.flat_map { |table| table.rows.map { |row| row.first.to_s } }.uniq
          rows = names.map do |name|
            [name, *columns.flat_map { |column| tables.values.map { |table| table.entry(name, column) } }]
          end
          heading = [tables.values.first.columns.first, *columns.product(tables.keys).map { |pair| pair.join(", ") }]
          new(title: title, columns: heading, rows: rows, notes: merged_notes(tables))
        end

        def self.merged_notes(tables)
          runs_by_note = Hash.new { |hash, note| hash[note] = [] }
          tables.each { |run, table| table.notes.each { |note| runs_by_note[note] << run } }
          runs_by_note.map { |note, runs| (runs.size == tables.size) ? note : "#{runs.join(", ")}: #{note}" }
        end
        private_class_method :merged, :merged_notes

        # @param name [String] of a row
        # @param column [String]
        # @return [String, Entry]
        def entry(name, column)
          row = rows.find { |one| one.first.to_s == name }
          index = columns.index(column)
          (row && index) ? row[index] : Entry.new("–")
        end
      end
    end
  end
end
