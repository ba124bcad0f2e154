# frozen_string_literal: true

module Heddle
  module DB
    # A column of a result.
    #
    # @!attribute name
    #   @return [String]
    # @!attribute type
    #   @return [Symbol] :integer, :float, :decimal, :text, :bytes, :date, :datetime, :time, :bits, :json, :null
    # @!attribute native_type
    #   @return [Integer] the server's number for it
    # @!attribute nullable
    #   @return [Boolean]
    # @!attribute unsigned
    #   @return [Boolean]
    # @!attribute scale
    #   @return [Integer] digits behind the point
    # @!attribute length
    #   @return [Integer] bytes, at most
    # @!attribute table
    #   @return [String] as it is called in the query; empty for an expression
    Column = Struct.new(:name, :type, :native_type, :nullable, :unsigned, :scale, :length, :table, keyword_init: true)
  end
end
