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
      Table = Struct.new(:title, :columns, :rows, :notes, :prose, keyword_init: true)
    end
  end
end
