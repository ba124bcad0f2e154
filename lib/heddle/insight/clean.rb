# frozen_string_literal: true

module Heddle
  module Insight
    # Text of whatever origin for terminals and JSON.
    #
    # @api private
    module Clean
      UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/
      LONGEST = 300 # characters
      # Two columns on a terminal, and none.
      WIDE = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60]|
        [\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f680}-\u{1f6ff}\u{1f900}-\u{1faff}\u{20000}-\u{3fffd}]/x
      NARROW = /[\p{Mn}\p{Me}\u200b-\u200d]/
      private_constant :UNPRINTABLE, :LONGEST, :WIDE, :NARROW

      module_function

      # @param text [String]
      # @return [String] valid UTF-8 in one line, without escape sequences and other controls
      def clean(text, longest = LONGEST)
        text = text.to_s
        text = text.byteslice(0, 4 * longest) if text.bytesize > 4 * longest
        text = text.dup.force_encoding(Encoding::UTF_8).scrub("?")
        text = text.gsub(UNPRINTABLE) { |character| character.dump[1..-2] } if text.match?(UNPRINTABLE)
        (text.size > longest) ? "#{text[0, longest - 1]}…" : text
      end

      # @param text [String] clean
      # @return [Integer] columns of a terminal
      def width(text) = text.ascii_only? ? text.size : text.size + text.scan(WIDE).size - text.scan(NARROW).size

      # @param text [String]
      # @return [String] the same in quotes
      def quote(text, longest = LONGEST) = "\"#{clean(text, longest)}\""
    end
  end
end
