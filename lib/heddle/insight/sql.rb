# frozen_string_literal: true

require_relative "clean"

module Heddle
  module Insight
    # The text of a statement without values, which nobody but the program may see.
    #
    # @api private
    module SQL
      # Strings of each kind, comments, numbers. What MySQL has in double quotes may be a value: so is what others have
      # there, as names. Whether a backslash before the last quote is a part of the string depends on the database: what
      # follows may be a value, all of it.
      VALUES = %r{(?<![\w$])\$(?<tag>\w*)\$.*?(?:\$\k<tag>\$|\z)|
        (?<![\w$])e'(?:[^'\\]|''|\\.)*(?:'|\z)|
        [bxn]?'(?:[^'\\]|''|\\[^'])*(?:'|\\'.*|\\?\z)|"(?:[^"\\]|""|\\[^"])*(?:"|\\".*|\\?\z)|
        --[^\n]*|/\*.*?(?:\*/|\z)|(?<![\w$])(?:0x\h+|\d+(?:\.\d*)?(?:e[+-]?\d+)?)}mix
      LONGEST = 2000
      private_constant :VALUES, :LONGEST

      module_function

      # @param text [String]
      # @return [String]
      def without_values(text)
        text = text.byteslice(0, LONGEST).force_encoding(Encoding::UTF_8).scrub("?")
        Clean.clean(text.gsub(VALUES) { |value| value.start_with?("--", "/*") ? " " : "?" }.gsub(/\s+/, " "))
      end
    end
  end
end
